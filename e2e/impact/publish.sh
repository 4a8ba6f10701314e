# The plan first, and then the commit.
git -C $REPO add -A
hawser diff $REPO -o json >plan.json
[ $? = 1 ] || { echo 'no changes'; exit 1; }
git -C $REPO commit -qm change
