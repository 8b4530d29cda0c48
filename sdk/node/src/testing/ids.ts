/** Ids of the form that the engine gives, the same in every execution of a test. */

const DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const PREFIX = "01KDVMTS00";
const RANDOM_DIGITS = 16;

/** An id for a text. Not by the time either: a crash must not change the ids of what comes after it. */
export function ulid(seed: string): string {
  let id = PREFIX;
  for (let place = 0; place < RANDOM_DIGITS; place += 1) id += DIGITS[hash(`${place}/${seed}`) & 31];
  return id;
}

/** FNV-1a, well mixed. */
function hash(text: string): number {
  let value = 0x811c9dc5;
  for (let index = 0; index < text.length; index += 1) value = Math.imul(value ^ text.charCodeAt(index), 0x01000193);
  value = Math.imul(value ^ (value >>> 15), 0x85ebca6b);
  return (value ^ (value >>> 13)) >>> 0;
}
