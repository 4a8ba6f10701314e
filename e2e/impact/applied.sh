# Every agent has what was committed last, and every link of it carries.
head=$(git -C $REPO rev-parse HEAD)
hawser lab status -o json | jq -e --arg head $head '.source == $head and (.digest as $d | [.nodes[].agent | .ready and .digest == $d] | all)' >/dev/null &&
    hawser show connections -o json | jq -e '[.agents[].connections[]? | .status == "connected" and .migration == null] | length > 0 and all' >/dev/null
