/** A value that holds for a call and all that it awaits: AsyncLocalStorage, where there is one. */

/** What is used of AsyncLocalStorage. */
interface Storage<T> {
  run<R>(value: T, call: () => R): R;
  getStore(): T | undefined;
}

interface Runtime {
  readonly AsyncLocalStorage?: new <T>() => Storage<T>;
  readonly process?: { getBuiltinModule?(name: string): Runtime | undefined };
}

/**
 * The AsyncLocalStorage of Node, Deno, Bun, Workers and edge runtimes, asked for in a way that no bundler stumbles over.
 *
 * Where there is none, one that knows of the call until it awaits something for the first time.
 */
export function asyncContext<T>(): Storage<T> {
  const { AsyncLocalStorage, process } = globalThis as Runtime;
  const Found = AsyncLocalStorage ?? process?.getBuiltinModule?.("node:async_hooks")?.AsyncLocalStorage;
  return Found === undefined ? new SyncContext<T>() : new Found<T>();
}

/** Knows of a call until it returns, which one that is async does when it awaits something for the first time. */
class SyncContext<T> implements Storage<T> {
  #value: T | undefined;

  run<R>(value: T, call: () => R): R {
    const before = this.#value;
    this.#value = value;
    try {
      return call();
    } finally {
      this.#value = before;
    }
  }

  getStore(): T | undefined {
    return this.#value;
  }
}
