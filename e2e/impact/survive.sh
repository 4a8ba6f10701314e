# FILE CHANGE LOSE: four connections for each line of the file (NAME CLUSTER TARGET KEY) while one script
# changes something, and four more until the other one has taken the gateways away that carry them; then
# what the plan said of each, how many lived through the change, and how many in the end.
flows=$1 change=$2 lose=$3
rm -f until-* ready-* tcp-*
pids= later= ready='-n yes'
start() { # PHASE
    hawser lab exec $cluster/default/client -- hawser-traffic tcp --count 4 --open 60s --patience 20s --ready $WORK/ready-$1-$name --until $WORK/until-$1 $target >tcp-$1-$name.json </dev/null &
    ready="$ready -a -e ready-$1-$name"
}
while read -r name cluster target key; do
    start change
    pids="$pids $!"
    start loss
    later="$later $!"
done <$flows
sh await.sh 60 test $ready || exit 1
sh $change >&2 || failed=$change
sleep 1 # the flows continue for a while over the current links
touch until-change
wait $pids
[ -n "$failed" ] || sh $lose >&2 || failed=$lose
sleep 1
touch until-loss
wait $later
[ -z "$failed" ] || { echo "failed: $failed"; exit 1; }
jq -c '.impact, .access.removed' plan.json >&2
while read -r name cluster target key; do
    echo "$name: $(sh predicted.sh "$key"), $(jq .survivors tcp-change-$name.json) live, $(jq .survivors tcp-loss-$name.json) live over other gateways"
done <$flows
