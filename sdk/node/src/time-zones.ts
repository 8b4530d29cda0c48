/** Time zones of schedules, which the engine judges by a list of its own: what this runtime can say of them. */

/** A sentence for each zone of a definition that this runtime does not know, where it knows any. */
export function zoneDoubts(definition: Readonly<Record<string, unknown>>): string[] {
  const triggers = (definition["triggers"] ?? []) as readonly Readonly<Record<string, unknown>>[];
  return triggers.flatMap(({ timezone }, index) => {
    if (typeof timezone !== "string" || isKnown(timezone) || !isKnown("Europe/Istanbul")) return [];
    return [
      `triggers[${index}].timezone: this runtime knows no "${timezone}"; if the engine does not either, it will ` +
        "refuse the definitions (zones are IANA names, exactly spelled, such as Europe/Istanbul)",
    ];
  });
}

function isKnown(timeZone: string): boolean {
  try {
    new Intl.DateTimeFormat("en", { timeZone });
    return true;
  } catch {
    return false;
  }
}
