/** The version of this package, as the introspect answer names it. */
export const VERSION = "0.1.0";
