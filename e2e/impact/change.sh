# SED...: changes the topology and what is allocated, until every agent has the commit and every link
# carries; -f FILE for a file of edits.
set -e
if [ "$1" = -f ]; then
    sed -i -f "$2" $REPO/clusterset.yaml
else
    for edit; do sed -i "$edit" $REPO/clusterset.yaml; done
fi
(cd $REPO && hawser allocate)
sh publish.sh
sh await.sh 60 sh applied.sh
