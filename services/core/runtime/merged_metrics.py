"""The metrics of several processes under one parent as one text: each sample with the process that it is of.

One address to scrape, as there is one to probe, however many processes there are and wherever they listen.
"""

from __future__ import annotations

from collections.abc import Mapping


def merged(texts: Mapping[str, str]) -> str:
    """What these processes tell, by their names, in the text format 0.0.4, with the label `process` added.

    Samples of one family must stand together, so the texts are taken apart into families. A line ends with a line feed:
    other ends of lines may be in the value of a label.
    """
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for process, text in texts.items():
        family = ""
        for line in text.split("\n"):
            if line.startswith("#"):
                words = line.split(" ", 3)
                if len(words) < 3 or words[1] not in ("HELP", "TYPE"):
                    continue
                family = words[2]
                head = heads.setdefault(family, [])
                if line not in head:
                    head.append(line)
            elif line:
                samples.setdefault(family, []).append(_labelled(line, process))
    lines = [line for family, found in samples.items() for line in (*heads.get(family, ()), *found)]
    return "".join(f"{line}\n" for line in lines)


def _labelled(line: str, process: str) -> str:
    """The sample with one more label, which stands first: values of others may hold anything."""
    end = min(place for place in (line.find("{"), line.find(" "), len(line)) if place >= 0)
    name, rest = line[:end], line[end:]
    if not rest.startswith("{"):
        return f'{name}{{process="{process}"}}{rest}'
    return f'{name}{{process="{process}"{"" if rest.startswith("{}") else ","}{rest[1:]}'
