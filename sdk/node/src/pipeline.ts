/** The middleware of a project as one: hooks and codecs in their orders. */

import { StepArgumentError } from "./errors.js";
import type { Logger } from "./logger.js";
import type { Middleware, Where } from "./middleware.js";
import { typeName } from "./shown.js";

type Codec = Pick<Middleware, "encode" | "decode">;
type Starts = "invocationStarts" | "stepStarts";
type Ends = "invocationEnds" | "stepEnds";
type Arguments<Hook extends Starts | Ends> = Parameters<NonNullable<Middleware[Hook]>>;

/** Values on their way to the engine and back. */
export class Codecs {
  readonly #encoders: Codec[];
  readonly #decoders: Codec[];

  constructor(codecs: readonly Codec[]) {
    this.#encoders = codecs.filter(({ encode }) => encode !== undefined);
    this.#decoders = codecs.filter(({ decode }) => decode !== undefined).reverse();
  }

  /** Whether values are stored as they are. */
  get encodesNothing(): boolean {
    return this.#encoders.length === 0;
  }

  /** Whether values come as they are stored. */
  get decodesNothing(): boolean {
    return this.#decoders.length === 0;
  }

  /** What is stored in place of a value. Rejects with what a middleware throws. */
  async encode(value: unknown, where: Where): Promise<unknown> {
    let encoded = value;
    for (const codec of this.#encoders) encoded = await codec.encode?.(encoded, where);
    return encoded;
  }

  /** The value in place of which another was stored. */
  async decode(value: unknown, where: Where): Promise<unknown> {
    let decoded = value;
    for (const codec of this.#decoders) decoded = await codec.decode?.(decoded, where);
    return decoded;
  }

  /** Data of an event. Rejects with StepArgumentError where it is encoded as something that no event may have. */
  async encodeData(data: unknown): Promise<unknown> {
    const encoded = await this.encode(data, "event");
    if (typeof encoded === "object" && encoded !== null && !Array.isArray(encoded)) return encoded;
    throw new StepArgumentError(`data of an event must be encoded as an object, not ${typeName(encoded)}`);
  }

  /** An event, with its data decoded. */
  async decodeEvent<E extends { readonly data: unknown }>(event: E): Promise<E> {
    return this.decodesNothing ? event : { ...event, data: await this.decode(event.data, "event") };
  }
}

/** All that middleware does. */
export class Pipeline extends Codecs {
  readonly #middleware: readonly Middleware[];
  readonly #logger: Logger;

  constructor(middleware: readonly Middleware[], logger: Logger) {
    super(middleware);
    this.#middleware = middleware;
    this.#logger = logger;
  }

  /** Whether anybody is told of a start or an end of this kind. */
  hears(what: "invocation" | "step"): boolean {
    return this.#middleware.some((one) => one[`${what}Starts`] !== undefined || one[`${what}Ends`] !== undefined);
  }

  /** Tells of a start, in order. `begun` has those that have been told; rejects with what the next one throws. */
  async starts<Hook extends Starts>(hook: Hook, begun: Middleware[], ...given: Arguments<Hook>): Promise<void> {
    for (const one of this.#middleware) {
      await (one[hook] as ((...given: unknown[]) => unknown) | undefined)?.call(one, ...given);
      begun.push(one);
    }
  }

  /** Tells those of the end, in reverse; what they throw is logged. Never rejects: a result stands behind it. */
  async ends<Hook extends Ends>(hook: Hook, begun: readonly Middleware[], ...given: Arguments<Hook>): Promise<void> {
    for (const one of [...begun].reverse()) {
      try {
        await (one[hook] as ((...given: unknown[]) => unknown) | undefined)?.call(one, ...given);
      } catch (error) {
        this.#tell(`a middleware failed in ${hook}; the result stands`, error);
      }
    }
  }

  #tell(...what: unknown[]): void {
    try {
      this.#logger.error(...what);
    } catch {
      // A logger that throws, as one may that cannot show the error, has nobody to tell.
    }
  }
}
