/** Middleware that encrypts all that the engine stores, with AES-GCM of Web Crypto. */

import { type Middleware, NonRetriableError } from "../src/index.js";

const PREFIX = "aes:";

/** A key of 32 bytes. Values from elsewhere, which are not encrypted, come through as they are. */
export async function encryption(secret: Uint8Array<ArrayBuffer>): Promise<Middleware> {
  const key = await crypto.subtle.importKey("raw", secret, "AES-GCM", false, ["encrypt", "decrypt"]);
  return {
    async encode(value, where) {
      const iv = crypto.getRandomValues(new Uint8Array(12));
      const plain = new TextEncoder().encode(JSON.stringify(value));
      const sealed = new Uint8Array(await crypto.subtle.encrypt({ name: "AES-GCM", iv }, key, plain));
      const text = PREFIX + base64(iv) + "." + base64(sealed);
      if (where !== "event") return text;
      // What triggers and waits match by stays readable, and so does what only the engine looks at.
      const { order_id } = value as { order_id?: unknown };
      return order_id === undefined ? { sealed: text } : { order_id, sealed: text };
    },
    async decode(value, where) {
      const text = where === "event" ? (value as { sealed?: unknown }).sealed : value;
      if (typeof text !== "string" || !text.startsWith(PREFIX)) return value;
      const [iv = "", sealed = ""] = text.slice(PREFIX.length).split(".");
      try {
        const plain = await crypto.subtle.decrypt({ name: "AES-GCM", iv: bytes(iv) }, key, bytes(sealed));
        return JSON.parse(new TextDecoder().decode(plain));
      } catch (error) {
        throw new NonRetriableError("a value was encrypted with another key", { cause: error });
      }
    },
  };
}

function base64(data: Uint8Array): string {
  return btoa(String.fromCharCode(...data));
}

function bytes(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}
