# The workflows of function.sh. A body sets RESULT to a JSON text, or raises an error: NAME MESSAGE [MORE] in JSON.

introspect() {
	listed=''
	for name in order conformance-replay conformance-ids conformance-errors conformance-kinds conformance-values \
		conformance-swallow conformance-nested; do
		listed="$listed,{\"name\":\"$name\"}"
	done
	sdk='{"name":"plain-shell","language":"shell","version":"1"}'
	answer 200 "{\"runr_workflow\":\"v1\",\"sdk\":$sdk,\"workflows\":[${listed#,}]}"
}

dispatch() {
	case $1 in
		'"order"') invoke order ;;
		'"conformance-replay"') invoke replay ;;
		'"conformance-ids"') invoke ids ;;
		'"conformance-errors"') invoke errors ;;
		'"conformance-kinds"') invoke kinds ;;
		'"conformance-values"') invoke values ;;
		'"conformance-swallow"') invoke swallow ;;
		'"conformance-nested"') invoke nested ;;
		*)
			name=${1#?}
			refuse 400 "the workflow ${name%?} is not served here"
			;;
	esac
}

# Reserve, wait for the shipping, and say what has become of the order.
order() {
	run '"reserve"' reserve || return 1
	reserved=$RESULT
	ask '"cool-off"' sleep ',"duration":"10m"' || return 1
	ask '"shipped"' wait_for_event ',"event":"order.shipped","match":"data.order_id","timeout":"3d"' || return 1
	status=done
	[ "$RESULT" != null ] || status=lost
	RESULT="{\"status\":\"$status\",\"reserved\":$reserved}"
}

reserve() {
	data order_id
	RESULT="{\"order\":$FIELD}"
}

# --- for `runr conformance` (docs/how-to/conformance.md) ----------------------

replay() {
	executed=''
	run '"first"' body '"first"' || return 1
	first=$RESULT
	run '"second"' body '"second"' || return 1
	RESULT="{\"first\":$first,\"second\":$RESULT,\"executed\":[${executed#,}]}"
}

body() {
	executed="$executed,$1"
	data tag
	tag=$FIELD
	field '.run."attempt"'
	RESULT="{\"step\":$1,\"executed\":[${executed#,}],\"attempt\":$FIELD,\"tag\":$tag}"
}

ids() {
	index=0 results=''
	while field ".event.\"data\".ids[$index]"; do
		run "$FIELD" returns "$index" || return 1
		results="$results,$RESULT" index=$((index + 1))
	done
	RESULT="[${results#,}]"
}

returns() { RESULT=$1; }

errors() {
	data where
	[ "$FIELD" != '"workflow"' ] || fail || return 1
	run '"risky"' fail && return 0
	data catch
	[ "$FIELD" = true ] || return 1
	seen="{\"name\":$ERROR_NAME,\"message\":$ERROR_MESSAGE,\"step_id\":\"risky\"}"
	run '"compensate"' returns "$seen" || return 1
	RESULT=$seen
}

fail() {
	data message
	message=$FIELD
	data kind
	case $FIELD in
		'"non_retriable"') raise '"NonRetriableError"' "$message" "$FINAL" ;;
		'"retry_after"')
			data retry_after
			raise '"RetryAfterError"' "$message" ",\"retry_after\":$FIELD"
			;;
		*) raise '"ConformanceError"' "$message" ;;
	esac
}

kinds() {
	data kind
	op=${FIELD#?} op=${op%?} fields=''
	[ "$op" != sleep_until ] || op=sleep
	for name in duration until event match timeout lookback workflow data events; do
		data "$name" ''
		[ -z "$FIELD" ] || fields="$fields,\"$name\":$FIELD"
	done
	if ask '"it"' "$op" "$fields"; then
		RESULT="{\"result\":$RESULT}"
	else
		RESULT="{\"error\":{\"name\":$ERROR_NAME,\"message\":$ERROR_MESSAGE,\"step_id\":\"it\"}}"
	fi
}

values() {
	data where
	if [ "$FIELD" = '"workflow"' ]; then
		make
		return
	fi
	run '"value"' make || return 1
	RESULT="{\"value\":$RESULT}"
}

make() {
	data make
	case $FIELD in
		'"echo"') data value && RESULT=$FIELD ;;
		'"nan"') RESULT=NaN ;;
		'"infinity"') RESULT='[1,-Infinity]' ;;
		'"unserializable"') RESULT='<a file>' ;;
		*) RESULT=null ;;
	esac
}

# In a subshell, the end of a step is caught: only that process ends.
swallow() {
	data "then"
	then=$FIELD
	(run '"first"' returns 1)
	[ "$then" != '"raise"' ] || raise '"ConformanceError"' '"after the swallowing"' || return 1
	[ "$then" != '"step"' ] || (run '"second"' returns 2)
	RESULT='"swallowed"'
}

nested() { run '"outer"' run '"inner"' returns 1; }
