# What the virtual machine does once the host's root is its own: the job, between marks.
[ $$ = 1 ] || exit 1
echo "hawser-vm: begin"
/bin/bash /run/job </dev/null
echo "hawser-vm: exit $?"
sync
echo o >/proc/sysrq-trigger
while :; do :; done # the first process must not end before the power does
