/** A variable of the environment, where there is one. */
export function environment(name: string): string | undefined {
  return typeof process === "undefined" ? undefined : process.env?.[name];
}
