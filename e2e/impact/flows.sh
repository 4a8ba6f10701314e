# flows.sh FILE CMD... opens four connections for each line of FILE and sends 50 datagrams a second
# while CMD runs. A line is NAME FROM TARGET KEY [udp | large]; FROM is a cluster (its pod
# default/client) or a pod. For each line it prints the plan's prediction if the result matches.
# With large, lines have 20,000 bytes, and datagrams fill their packets. Connections that may end
# do not end with the change itself (survive.sh).
flows=$1
shift
rm -f until ready-* tcp-* udp-*
pids=
start() { # KIND FLAGS...
    kind=$1
    shift
    hawser lab exec $pod -- hawser-traffic $kind "$@" --ready $WORK/ready-$kind-$name --until $WORK/until $target >$kind-$name.json </dev/null &
    pids="$pids $!" ready="$ready -a -e ready-$kind-$name"
}
ready='-n yes'
while read -r name from target key datagrams; do
    pod=$from
    case $from in */*) ;; *) pod=$from/default/client ;; esac
    case "$datagrams" in
    large)
        start tcp --count 4 --kinds busy --line 20000 --open 60s --patience 8s
        start udp --rate 50 --size 1372 ;;
    udp)
        start tcp --count 4 --open 60s --patience 8s
        start udp --rate 50 ;;
    *)
        start tcp --count 4 --open 60s --patience 8s ;;
    esac
done <$flows
sh await.sh 60 test $ready || exit 1
"$@" >&2 || failed=$*
sleep 1 # the flows continue for a while over the current links
touch until
wait $pids
[ -z "$failed" ] || { echo "failed: $failed"; exit 1; }
jq -c '.impact, .access.removed' plan.json >&2
while read -r name from target key datagrams; do
    predicted=$(sh predicted.sh "$key")
    # A busy machine may delay everything: datagrams that this program did not send are no outage.
    # A second is far less than the restart of a link takes.
    most=1000
    case "$predicted" in 'pauses '*) most=$((most + ${predicted##* })) predicted='pauses' ;; esac
    alive=$(jq .survivors tcp-$name.json)
    echo "$name: $alive of 4, $(jq -c '[.kinds[].stall.max] | max' tcp-$name.json) ms, $([ -z "$datagrams" ] || jq -c '{sent, lost, silence, pause}' udp-$name.json)" >&2
    case "$predicted $alive" in
    'continues 4' | 'pauses 4')
        [ -z "$datagrams" ] || [ "$(jq --argjson most $most '.silence.long <= $most + .pause' udp-$name.json)" = true ] || predicted="$predicted, and is silent for longer than $most ms" ;;
    'ends 0' | 'may end 4') ;;
    *) predicted="said that it $predicted, and $alive of 4 connections live" ;;
    esac
    echo "$name: $predicted"
done <$flows
