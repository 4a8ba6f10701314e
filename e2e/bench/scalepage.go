package main

import (
	"fmt"
	"time"
)

// of takes one figure of every gateway that was added, in the middle.
func (r scaleRun) of(figure func(addedGateway) time.Duration) time.Duration {
	var all []time.Duration
	for _, a := range r.added {
		all = append(all, figure(a))
	}
	return median(all)
}

func scaleSection(few, many scaleRun) section {
	s := section{
		title: "One agent and many gateways",
		how: fmt.Sprintf(`
One cluster with one gateway, whose agent is the built program in a namespace, and the gateways of %d (%d) other clusters with the same prefixes, one each:
one process that says to it all that they would, each with its own address and keys (probes, probes of full size, a feed in each direction). The links are VXLAN. *At rest* is
the agent's share of one core over %s, when nothing changes. Then %d clusters join, one after the other: *until it is connected* runs from
the new fabric to the status that says so, probes included; *processor* is what the agent used until then beyond what it uses at rest, the questions included. The reference is a tenth of the gateways: a ratio near 1 does not
grow with them, 0.10 is growth in proportion.`,
			many.others, few.others, scaleMeasure, scaleAdded),
	}
	times := func(what string, figure func(scaleRun) time.Duration) row {
		return row{what: what, figure: millis(figure(many)), reference: millis(figure(few)),
			ratio: fmt.Sprintf("%.2f", figure(few).Seconds()/figure(many).Seconds())}
	}
	added := func(figure func(addedGateway) time.Duration) func(scaleRun) time.Duration {
		return func(r scaleRun) time.Duration { return r.of(figure) }
	}
	objects := func(r scaleRun) int {
		var all []int
		for _, a := range r.added {
			all = append(all, a.changed)
		}
		return median(all)
	}
	s.rows = []row{
		times("until all links are connected", func(r scaleRun) time.Duration { return r.connected }),
		times("the first pass, in which all is made", func(r scaleRun) time.Duration { return r.pass }),
		{what: "objects made", figure: fmt.Sprint(many.objects), reference: fmt.Sprint(few.objects),
			ratio: fmt.Sprintf("%.2f", float64(few.objects)/float64(many.objects))},
		{what: "at rest, processor", figure: fmt.Sprintf("%.1f %%", many.idle*100), reference: fmt.Sprintf("%.1f %%", few.idle*100),
			ratio: fmt.Sprintf("%.2f", few.idle/many.idle)},
		{what: "at rest, memory", figure: fmt.Sprintf("%d MiB", many.memory>>20), reference: fmt.Sprintf("%d MiB", few.memory>>20),
			ratio: fmt.Sprintf("%.2f", float64(few.memory)/float64(many.memory))},
		times("one more gateway, until it is connected", added(func(a addedGateway) time.Duration { return a.seen })),
		times("one more gateway, the longest pass", added(func(a addedGateway) time.Duration { return a.pass })),
		times("one more gateway, processor", added(func(a addedGateway) time.Duration { return a.cpu })),
		{what: "one more gateway, objects changed", figure: fmt.Sprint(objects(many)), reference: fmt.Sprint(objects(few)),
			ratio: fmt.Sprintf("%.2f", float64(objects(few))/float64(objects(many)))},
	}
	return s
}
