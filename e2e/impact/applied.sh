# Every agent has the last commit, and all its links are connected. All nodes of two clusters use the same
# good link between them, so paths have settled.
head=$(git -C $REPO rev-parse HEAD)
hawser lab status -o json | jq -e --arg head $head '.source == $head and (.digest as $d | [.nodes[].agent | .ready and .digest == $d] | all)' >/dev/null &&
    hawser show connections -o json | jq -e '[.agents[].connections[]? | .status == "connected" and .migration == null] | length > 0 and all' >/dev/null &&
    hawser show paths -o json | jq -e '[.agents[] | .cluster as $from | .paths[]? | select(.transit == null) |
        {pair: ([$from, .cluster] | sort), link: (.link | split("-") | sort), rank}] |
        all(.[]; .rank == "good") and (group_by(.pair) | all(.[]; map(.link) | unique | length == 1))' >/dev/null
