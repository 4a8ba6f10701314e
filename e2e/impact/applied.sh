# Every agent has what was committed last, every link of it carries, and all nodes of two clusters use one
# good link between them: no path moves any more.
head=$(git -C $REPO rev-parse HEAD)
hawser lab status -o json | jq -e --arg head $head '.source == $head and (.digest as $d | [.nodes[].agent | .ready and .digest == $d] | all)' >/dev/null &&
    hawser show connections -o json | jq -e '[.agents[].connections[]? | .status == "connected" and .migration == null] | length > 0 and all' >/dev/null &&
    hawser show paths -o json | jq -e '[.agents[] | .cluster as $from | .paths[]? | select(.transit == null) |
        {pair: ([$from, .cluster] | sort), link: (.link | split("-") | sort), rank}] |
        all(.[]; .rank == "good") and (group_by(.pair) | all(.[]; map(.link) | unique | length == 1))' >/dev/null
