#!/bin/sh
# A function server for RunR workflows in plain shell: one HTTP request on stdin, its answer on stdout, as inetd,
# socat, ncat or systemd start a program for each connection. It follows docs/protocol.md, whose sections the comments
# name, and serves an order and the workflows that `runr conformance` drives. JSON is read by json.awk beside it.
#
# A step's end is the end of the process: code after the first step without a result is never reached (section 7).

set -u
export LC_ALL=C
umask 077
case $0 in */*) here=${0%/*} ;; *) here=. ;; esac
MOST_BYTES=67108864
WINDOW_S=300
CR=$(printf '\r')
NL='
'
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
REQUEST_ID='' HEADER='' HAS_HEADER='' LENGTH=0 EXECUTING=''

# --- HTTP (sections 1 and 2) -------------------------------------------------

read_head() {
	IFS= read -r line || exit 0
	while IFS= read -r line && line=${line%"$CR"} && [ -n "$line" ]; do
		text=${line#*:}
		text=${text#"${text%%[! ]*}"}
		case ${line%%:*} in
			[Cc][Oo][Nn][Tt][Ee][Nn][Tt]-[Ll][Ee][Nn][Gg][Tt][Hh]) LENGTH=$text ;;
			[Xx]-[Rr][Uu][Nn][Rr]-[Ss][Ii][Gg][Nn][Aa][Tt][Uu][Rr][Ee]) HEADER=$text HAS_HEADER=1 ;;
			[Xx]-[Rr][Uu][Nn][Rr]-[Rr][Ee][Qq][Uu][Ee][Ss][Tt]-[Ii][Dd]) REQUEST_ID=$text ;;
		esac
	done
	case $LENGTH in '' | *[!0-9]* | ??????????*) LENGTH=$((MOST_BYTES + 1)) ;; esac
}

# answer STATUS JSON: writes the answer.
answer() {
	printf 'HTTP/1.1 %s -\r\nContent-Type: application/json\r\nContent-Length: %s\r\nConnection: close\r\n' "$1" "${#2}"
	case $REQUEST_ID in '' | *[!0-9A-Za-z-]*) ;; *) printf 'X-RunR-Request-Id: %s\r\n' "$REQUEST_ID" ;; esac
	printf '\r\n%s' "$2"
}

# refuse STATUS TEXT: TEXT is what may stand in a JSON string.
refuse() {
	answer "$1" "{\"error\":\"$2\"}"
	exit 0
}

# --- signatures (section 6) --------------------------------------------------

digest() { openssl dgst -sha256 -r | cut -c 1-64; }

hex_of() { od -An -v -tx1 | tr -d ' \n'; }

# pad HEX BYTE: 64 bytes, the key's with BYTE in each of them, as printf writes them. No key is an argument of a program.
pad() {
	hex=$1 padded='' count=0
	while [ "$count" -lt 64 ]; do
		byte=0
		[ -n "$hex" ] && byte=$((0x${hex%"${hex#??}"})) && hex=${hex#??}
		byte=$((byte ^ $2)) count=$((count + 1))
		padded="$padded\\$((byte >> 6))$((byte >> 3 & 7))$((byte & 7))"
	done
}

# bytes HEX: as printf writes them.
bytes() {
	hex=$1 written=''
	while [ -n "$hex" ]; do
		byte=$((0x${hex%"${hex#??}"})) hex=${hex#??}
		written="$written\\$((byte >> 6))$((byte >> 3 & 7))$((byte & 7))"
	done
}

# hmac KEY T: of "<T>.<request>".
hmac() {
	key=$(printf %s "$1" | hex_of)
	[ "${#key}" -le 128 ] || key=$(printf %s "$1" | digest)
	pad "$key" 54
	bytes "$({ printf "$padded"; printf %s. "$2"; cat "$work/request"; } | digest)"
	pad "$key" 92
	{ printf "$padded"; printf "$written"; } | digest
}

# same A B: compares without ending at the first difference.
same() {
	one=$1 other=$2 differ=0
	while [ -n "$one$other" ]; do
		[ "${one%"${one#?}"}" = "${other%"${other#?}"}" ] || differ=1
		one=${one#?} other=${other#?}
	done
	[ "$differ" = 0 ]
}

# verify SIGNATURE: refuses unless a key of ours has signed the request with it.
verify() {
	rest=$1, first=1 times=0 t='' given='' pairs=0
	while [ -n "$rest" ]; do
		part=${rest%%,*} rest=${rest#*,}
		[ -n "$first" ] || part=${part#"${part%%[! ]*}"}
		first=''
		case $part in
			t=*) t=${part#t=} times=$((times + 1)) ;;
			v1=*[!0-9a-f]*) ;;
			v1=*) [ "${#part}" -ne 67 ] || given="$given ${part#v1=}" ;;
			*=*) ;;
			*) refuse 401 'the signature is malformed' ;;
		esac
	done
	case $t in '' | *[!0-9]* | ????????????????*) times=0 ;; esac
	[ "$times" = 1 ] || refuse 401 'the signature is malformed'
	seconds=${t#"${t%%[!0]*}"}
	away=$(($(date +%s) - ${seconds:-0}))
	[ "${away#-}" -le "$WINDOW_S" ] || refuse 401 'the signature is too old, or from the future'
	matches=''
	for key in "${RUNR_WORKFLOW_SIGNING_KEY:-}" "${RUNR_WORKFLOW_SIGNING_KEY_FALLBACK:-}"; do
		[ -n "$key" ] && [ -z "$matches" ] || continue
		own=$(hmac "$key" "$t")
		for each in $given; do same "$own" "$each" && matches=1; done
	done
	[ -n "$matches" ] || refuse 401 'the signature does not match'
}

# Leaves the verified request in $work/request, or refuses.
open_envelope() {
	tr -d '\000' <"$work/body" | cmp -s - "$work/body" || refuse 400 'a NUL, which not every awk can hold'
	iconv -f UTF-8 -t UTF-8 "$work/body" >"$work/utf8" 2>"$work/said" || refuse 400 'not UTF-8'
	MODE=envelope DIR=$work awk -f "$here/json.awk" <"$work/body" || refuse 400 'not an envelope'
	version='' signature=null
	[ ! -f "$work/version" ] || read -r version <"$work/version"
	[ ! -f "$work/signature" ] || IFS= read -r signature <"$work/signature"
	[ "$version" = '"v1"' ] && [ -f "$work/request" ] || refuse 400 'not an envelope of v1'
	case $signature in null | '"'*) ;; *) refuse 400 'signature is a string or null' ;; esac
	[ -n "${RUNR_WORKFLOW_SIGNING_KEY:-}${RUNR_WORKFLOW_SIGNING_KEY_FALLBACK:-}" ] || refuse 500 'no signing key is set'
	if [ "$signature" = null ]; then
		[ -n "$HAS_HEADER" ] || refuse 401 'not signed'
		verify "$HEADER"
	else
		signature=${signature#?} signature=${signature%?}
		[ -z "$HAS_HEADER" ] || same "$HEADER" "$signature" || refuse 401 'the signatures of header and envelope differ'
		verify "$signature"
	fi
}

# --- the request (section 4) -------------------------------------------------

# field PATH: sets FIELD to the JSON text there; fails without one. Members of the first level are .name, then ."name",
# deeper ones .name again.
field() {
	FIELD=$(WANTED=$1 awk 'BEGIN { wanted = ENVIRON["WANTED"] "\t" } index($0, wanted) == 1 { print substr($0, length(wanted) + 1); found = 1; exit } END { exit !found }' "$work/flat")
}

# data NAME [DEFAULT]: the same of the event's data.
data() { field ".event.\"data\".$1" || FIELD=${2-null}; }

must_be() {
	field ".$1" || FIELD=''
	case $FIELD in "$2"*) ;; *) refuse 400 "the request's $1 is missing, or of another type" ;; esac
}

# --- step calls (sections 3 and 7) -------------------------------------------

# An answer of one op; the first one stays.
end() {
	[ -f "$work/op" ] || printf %s "$1" >"$work/op"
	exit 0
}

is_json() {
	case $1 in '' | 0?* | *[!0-9]*) ;; *) return 0 ;; esac
	printf %s "$1" | MODE=flat DEPTH=-1 awk -f "$here/json.awk"
}

# failed OP FIELDS: the op of an error in ERROR_NAME, ERROR_MESSAGE (JSON strings) and ERROR_MORE.
failed() {
	end "{\"op\":\"$1\"$2,\"error\":{\"name\":$ERROR_NAME,\"message\":$ERROR_MESSAGE}$ERROR_MORE}"
}

raise() { ERROR_NAME=$1 ERROR_MESSAGE=$2 ERROR_MORE=${3-}; return 1; }

FINAL=',"non_retriable":true'

# is_id ID: 1 to 200 bytes of UTF-8, not blank, no NUL, no lone surrogate.
is_id() {
	case $(printf %s "$1" | sed 's/\\\\//g') in *\\u0000* | *\\ud*) return 1 ;; esac
	plain=$(printf %s "$1" | sed 's/\\u00../x/g; s/\\["\\]/x/g')
	[ "${#plain}" -le 200 ] && [ -n "$(printf %s "$1" | sed 's/\\u00\(09\|0[a-d]\)//g' | tr -d ' ')" ]
}

# begin ID: sets STEP to the id of the call, a JSON string: the user's, or with the first number that is free.
begin() {
	if [ -n "$EXECUTING" ]; then
		raise '"NestedStepError"' "\"step ${1#?}" || ERROR_MESSAGE="${ERROR_MESSAGE%?} was called inside step ${EXECUTING#?}"
		ERROR_MORE=$FINAL
		failed run_failed ''
	fi
	[ ! -f "$work/op" ] || exit 0
	user=${1#?} user=${user%?}
	case $user in
		'' | *[!0-9A-Za-z_.:-]*) is_id "$user" || raise '"StepArgumentError"' '"this is no step id"' "$FINAL" || failed run_failed '' ;;
		*) [ "${#user}" -le 200 ] || raise '"StepArgumentError"' '"a step id is too long"' "$FINAL" || failed run_failed '' ;;
	esac
	STEP="\"$user\"" number=0
	while [ -s "$work/used" ] && grep -Fqx -e "$STEP" "$work/used"; do
		number=$((number + 1))
		STEP="\"$user:$number\""
	done
	printf '%s\n' "$STEP" >>"$work/used"
}

# recall: RESULT of STEP, or its error, which is raised: status 0 or 1. Status 2: it has neither.
recall() {
	field ".steps.$STEP.status" || return 2
	if [ "$FIELD" = '"completed"' ]; then
		field ".steps.$STEP.output" || FIELD=null
		RESULT=$FIELD
		return 0
	fi
	field ".steps.$STEP.error.name" || FIELD='"Error"'
	name=$FIELD
	field ".steps.$STEP.error.message" || FIELD='""'
	raise "$name" "$FIELD" "$FINAL"
}

# run ID COMMAND...: sets RESULT to what COMMAND sets it to, now or at an earlier invocation; fails as the step failed.
run() {
	begin "$1"
	recall && return 0
	[ $? = 2 ] || return 1
	fields=",\"id\":$STEP,\"name\":$1"
	shift
	EXECUTING=$STEP
	if "$@"; then
		EXECUTING=''
		if is_json "$RESULT"; then end "{\"op\":\"step_completed\"$fields,\"output\":$RESULT}"; fi
		raise '"SerializationError"' '"the result is not JSON"' "$FINAL"
	fi
	EXECUTING=''
	failed step_failed "$fields"
}

# ask ID OP FIELDS: the same of what the engine does; FIELDS are members of the op, each with a comma before.
ask() {
	begin "$1"
	recall && return 0
	[ $? = 2 ] || return 1
	end "{\"op\":\"$2\",\"id\":$STEP,\"name\":$1$3}"
}

# invoke COMMAND: runs a workflow from the top. The op is answered when its process has ended, whatever ends it.
invoke() {
	: >"$work/used"
	(
		ERROR_MORE=''
		"$1" || failed run_failed ''
		is_json "$RESULT" || raise '"SerializationError"' '"the result is not JSON"' "$FINAL" || failed run_failed ''
		end "{\"op\":\"run_completed\",\"output\":$RESULT}"
	)
	answer 200 "{\"runr_workflow\":\"v1\",\"ops\":[$(cat "$work/op")]}"
}

. "$here/workflows.sh"

read_head
if [ "$LENGTH" -gt "$MOST_BYTES" ]; then
	answer 413 "{\"error\":\"a body has at most $MOST_BYTES bytes\"}"
	# Closed at once, the connection would be reset, and the answer lost.
	head -c "$((2 * MOST_BYTES))" >/dev/null
	exit 0
fi
head -c "$LENGTH" >"$work/body"
open_envelope
MODE=flat DEPTH=4 awk -f "$here/json.awk" <"$work/request" >"$work/flat" || refuse 400 'the request is not JSON'
field .type || FIELD=''
case $FIELD in
	'"introspect"') introspect ;;
	'"execute"')
		must_be run '{'
		must_be event '{'
		must_be steps '{'
		must_be workflow '"'
		dispatch "$FIELD"
		;;
	*) refuse 400 'the type of the request is not known' ;;
esac
