# NAME CMD...: does it while connections are open and datagrams flow, and compares what
# became of them with what the plan said.
name=$1
shift
rm -f until ready1 ready2
target=web.shop.svc.clusterset.local:7000
hawser lab exec g1/default/client -- hawser-traffic tcp --count 40 --patience 15s --ready $WORK/ready1 --until $WORK/until $target >tcp.json &
tcp=$!
hawser lab exec g1/default/client -- hawser-traffic udp --rate 50 --ready $WORK/ready2 --until $WORK/until $target >udp.json &
udp=$!
sh await.sh 30 test -e ready1 -a -e ready2 || exit 1
"$@" || failed=$*
sleep 1 # the flows continue for a while over the current links
touch until
wait $tcp $udp
[ -z "$failed" ] || { echo "failed: $failed"; exit 1; }
ends=$(jq '[.impact.breaks[] | select(.uncertain | not)] | length' plan.json) stalls=$(jq '.impact.pauses | length' plan.json) goeson=$(jq '.impact.continues | length' plan.json)
most=$(jq '[.impact.pauses[].at_most_ms // 30000] | max // 0' plan.json)
echo "said: $ends end, $stalls stand still, $goeson go on"
jq -r '.impact.loads[] | "load: \(.gateways | tojson) \(.gateways_before) gateways before"' plan.json
echo "$name: $(jq -c '{connections, survivors, resets, timeouts}' tcp.json) $(jq -c '{sent, lost, silence, pause}' udp.json)"
alive=$(jq .survivors tcp.json) all=$(jq .connections tcp.json)
if [ $ends -gt 0 ]; then
    [ "$alive" = 0 ] || { echo 'they were said to end'; exit 1; }
    exit 0
fi
[ "$alive" = "$all" ] || { echo 'they were said to go on'; exit 1; }
# A busy machine holds everything up for a moment: what this program itself did not send
# is no outage, and a second is far less than the restart of a link takes.
[ "$(jq --argjson most $most '.silence.long <= $most + 1000 + .pause' udp.json)" = true ] || { echo "silent for longer than $most ms"; exit 1; }
