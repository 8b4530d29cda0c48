/** What JSON holds. */
type Json = string | number | boolean | null | readonly Json[] | { readonly [name: string]: Json | undefined };

/** What JSON cannot hold and `encode` refuses, as far as types tell it from plain objects. */
type NotJson =
  | bigint
  | symbol
  | ((...args: never[]) => unknown)
  | ReadonlyMap<any, any>
  | ReadonlySet<any>
  | WeakMap<any, any>
  | ArrayBuffer
  | ArrayBufferView
  | RegExp
  | PromiseLike<any>;

/** The type of a value after it has gone through JSON, as `encode` of `values.ts` does it. */
export type Jsonified<T> = 0 extends 1 & T
  ? T
  : T extends Json
    ? T
    : T extends undefined | void
      ? null
      : T extends NotJson
        ? never
        : T extends { toJSON(...args: never[]): infer Made }
          ? Jsonified<Made>
          : T extends readonly unknown[]
            ? { -readonly [Index in keyof T]: Jsonified<T[Index]> }
            : T extends object
              ? { [Key in keyof T]: Property<T, Key> }
              : T;

/** A property that is undefined is left out: one that may be is optional, or still may be undefined. */
type Property<T, Key extends keyof T> =
  {} extends Pick<T, Key>
    ? Jsonified<Exclude<T[Key], undefined>>
    : undefined extends T[Key]
      ? Jsonified<Exclude<T[Key], undefined>> | undefined
      : Jsonified<T[Key]>;
