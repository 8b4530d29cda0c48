# JSON (RFC 8259) for function.sh: a strict reader that keeps the text of values as it is. Exit code 1: not JSON.
#
# MODE=flat      prints "path<TAB>text" for each value of stdin, down to DEPTH levels: .event.data.ids[0]<TAB>"a"
# MODE=envelope  writes the members of an envelope to DIR: version and signature as JSON, request as the text that it is
#
# A string is brought to one form, so that equal ones are equal texts: characters in UTF-8, controls as \u00XX, lone
# surrogates as they are. No NUL and no line break is ever in it. LC_ALL=C: a character is a byte.

BEGIN {
	DEEPEST = 200
	for (i = 0; i < 16; i++) DIGIT[substr("0123456789abcdef", i + 1, 1)] = i
	ESCAPE["\""] = 34; ESCAPE["\\"] = 92; ESCAPE["/"] = 47; ESCAPE["b"] = 8
	ESCAPE["f"] = 12; ESCAPE["n"] = 10; ESCAPE["r"] = 13; ESCAPE["t"] = 9
	DEPTH = ENVIRON["MODE"] == "envelope" ? 1 : ENVIRON["DEPTH"] + 0
	while ((getline line) > 0) S = (lines++ ? S "\n" : "") line
	at = 1
	value("", 0)
	blanks()
	if (at <= length(S)) exit 1
}

function blanks(    c) {
	while ((c = substr(S, at, 1)) != "" && index(" \t\n\r", c)) at++
}

# Recursion goes no deeper than what is printed: not every awk has the stack for more.
function value(path, level,    begin, c, text) {
	blanks()
	begin = at
	c = substr(S, at, 1)
	if (level >= DEPTH || (c != "{" && c != "[")) text = skipped(level)
	else members(path, level, c == "{")
	if (level > DEPTH) return
	if (text == "") text = on_a_line(substr(S, begin, at - begin))
	if (ENVIRON["MODE"] == "envelope") member(path, text)
	else print path "\t" text
}

# An object or a list, from its bracket to the other.
function members(path, level, is_object,    close_, count, key) {
	close_ = is_object ? "}" : "]"
	at++
	blanks()
	if (substr(S, at, 1) == close_) { at++; return }
	for (;;) {
		key = is_object ? name() : ""
		if (is_object) key = "." (key ~ /^"[a-z_]+"$/ && level != 1 ? substr(key, 2, length(key) - 2) : key)
		else key = "[" count++ + 0 "]"
		value(path key, level + 1)
		blanks()
		if (substr(S, at, 1) == close_) { at++; return }
		if (substr(S, at++, 1) != ",") exit 1
	}
}

# Goes behind a value. Returns a string in its one form, and nothing of any other value.
function skipped(level,    depth, c, text) {
	for (;;) {
		blanks()
		c = substr(S, at, 1)
		if (c == "{" || c == "[") {
			if (level + depth >= DEEPEST) exit 1
			CLOSE[++depth] = c == "{" ? "}" : "]"
			at++
			blanks()
			if (substr(S, at, 1) != CLOSE[depth]) {
				if (c == "{") name()
				continue
			}
			depth--
			at++
		} else if (c == "\"") text = string()
		else if (match(substr(S, at, 5), /^(true|null|false)/)) at += RLENGTH
		else if (match(substr(S, at, 1000), /^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?/)) at += RLENGTH
		else exit 1
		while (depth) {
			blanks()
			c = substr(S, at++, 1)
			if (c != CLOSE[depth]) break
			depth--
		}
		if (!depth) return c == "\"" ? text : ""
		if (c != ",") exit 1
		if (CLOSE[depth] == "}") name()
	}
}

# The name of a member, and the colon behind it.
function name(    key) {
	blanks()
	if (substr(S, at, 1) != "\"") exit 1
	key = string()
	blanks()
	if (substr(S, at++, 1) != ":") exit 1
	return key
}

# A string, in its one form, with its quotes. It is read in pieces: they double in size until something special comes.
function string(    out, size, piece, n, c, hex, low) {
	at++
	out = "\""
	size = 64
	for (;;) {
		piece = substr(S, at, size)
		if (!match(piece, /["\\\001-\037]/)) {
			if (piece == "") exit 1
			out = out piece
			at += length(piece)
			if (size < 65536) size *= 2
			continue
		}
		n = RSTART
		out = out substr(piece, 1, n - 1)
		at += n - 1
		size = 64
		c = substr(S, at, 1)
		if (c == "\"") { at++; return out "\"" }
		if (c != "\\") exit 1
		c = substr(S, at + 1, 1)
		at += 2
		if (c in ESCAPE) { out = out character(ESCAPE[c]); continue }
		hex = tolower(substr(S, at, 4))
		if (c != "u" || hex !~ /^[0-9a-f][0-9a-f][0-9a-f][0-9a-f]$/) exit 1
		at += 4
		low = tolower(substr(S, at, 6))
		if (hex ~ /^d[89ab]/ && low ~ /^\\ud[c-f][0-9a-f][0-9a-f]$/) {
			at += 6
			out = out utf8(65536 + (number(hex) - 55296) * 1024 + number(substr(low, 3)) - 56320)
		} else out = out (hex ~ /^d[89a-f]/ ? "\\u" hex : character(number(hex)))
	}
}

function character(code) {
	if (code < 32) return sprintf("\\u%04x", code)
	return (code == 34 || code == 92 ? "\\" : "") utf8(code)
}

function utf8(code) {
	if (code < 128) return sprintf("%c", code)
	if (code < 2048) return sprintf("%c%c", 192 + int(code / 64), 128 + code % 64)
	if (code < 65536) return sprintf("%c%c%c", 224 + int(code / 4096), 128 + int(code / 64) % 64, 128 + code % 64)
	return sprintf("%c%c%c%c", 240 + int(code / 262144), 128 + int(code / 4096) % 64, 128 + int(code / 64) % 64, 128 + code % 64)
}

function number(hex,    n, i) {
	for (i = 1; i <= length(hex); i++) n = n * 16 + DIGIT[substr(hex, i, 1)]
	return n
}

function on_a_line(text) {
	gsub(/[\t\n\r]/, " ", text)
	return text
}

function member(path, text,    file) {
	if (path == ".runr_workflow") file = "version"
	else if (path == ".signature") file = "signature"
	else if (path == ".request") file = "request"
	else return
	file = ENVIRON["DIR"] "/" file
	if (path == ".request") {
		if (text !~ /^"/) exit 1
		decoded(text, file)
	} else print text > file
	close(file)
}

# The characters of a string, where an escape is one again.
function decoded(text, file,    from, n, c) {
	printf "%s", "" > file
	for (from = 2; from < length(text); from += n) {
		n = index(substr(text, from, 4096), "\\") - 1
		if (n != 0) {
			if (n < 0) n = length(text) - from < 4096 ? length(text) - from : 4096
			printf "%s", substr(text, from, n) > file
			continue
		}
		c = substr(text, from + 1, 1)
		n = c == "u" ? 6 : 2
		printf "%c", (c == "u" ? number(substr(text, from + 2, 4)) : c) > file
	}
}
