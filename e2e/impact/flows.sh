# FILE CMD...: four connections for each line of the file (NAME CLUSTER TARGET KEY [udp]), and 200
# datagrams a second, while the command changes something; then what the plan said of each, if that
# is what became of it.
flows=$1
shift
rm -f until ready-* tcp-* udp-*
pids=
start() { # KIND FLAGS...
    kind=$1
    shift
    hawser lab exec $cluster/default/client -- hawser-traffic $kind "$@" --ready $WORK/ready-$kind-$name --until $WORK/until $target >$kind-$name.json </dev/null &
    pids="$pids $!" ready="$ready -a -e ready-$kind-$name"
}
ready='-n yes'
while read -r name cluster target key datagrams; do
    start tcp --count 4 --open 60s --patience 8s
    [ -z "$datagrams" ] || start udp --rate 200
done <$flows
sh await.sh 60 test $ready || exit 1
"$@" >&2 || failed=$*
sleep 1 # all goes on for a while over what there is now
touch until
wait $pids
[ -z "$failed" ] || { echo "failed: $failed"; exit 1; }
jq -c '.impact, .reach.lost' plan.json >&2
while read -r name cluster target key datagrams; do
    key="(^|[^a-z0-9])$key([^a-z0-9]|\$)"
    said=$(jq -r --arg key "$key" '[(.impact.ends[] | {text: .what, may}), (.reach.lost[] | {text: tostring, may: (.path | startswith("exports[") and (endswith(".allow") | not))})]
      | map(select(.text | test($key))) | if length > 0 then if all(.may) then "may end" else "ends" end else empty end' plan.json)
    # A busy machine holds everything up for a moment: what this program itself did not send
    # is no outage, and a second is far less than a link needs to be made anew.
    most=1000
    if [ -z "$said" ]; then
        stall=$(jq --arg key "$key" '[.impact.stalls[] | select(.what | test($key)) | .at_most_ms // 30000] | max // 0' plan.json)
        said='goes on'
        [ $stall = 0 ] || said='stands still' most=$((most + stall))
    fi
    alive=$(jq .survivors tcp-$name.json)
    [ -z "$datagrams" ] || echo "$name: $alive of 4, $(jq -c '{sent, lost, silence, pause}' udp-$name.json)" >&2
    case "$said $alive" in
    'goes on 4' | 'stands still 4')
        [ -z "$datagrams" ] || [ "$(jq --argjson most $most '.silence.long <= $most + .pause' udp-$name.json)" = true ] || said="$said, and is silent for longer than $most ms" ;;
    'ends 0' | 'may end '[0-4]) ;;
    *) said="said that it $said, and $alive of 4 connections live" ;;
    esac
    echo "$name: $said"
done <$flows
