package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"
)

func main() {
	ctx := context.Background()
	type variant struct {
		name  string
		lab   *natLab
		n     int
		times []time.Duration
	}
	check := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	var vs []*variant
	for _, v := range []struct {
		name  string
		n     int
		slots int
		ipt   string
	}{{"none", 1, 0, "none"}, {"h1", 1, 1, ""}, {"h1000", 1000, 1, ""}, {"h10000", 10000, 1, ""}, {"h10000x64", 10000, 64, ""}, {"ipt-nft", 10000, 0, "nft"}, {"ipt-legacy", 10000, 0, "legacy"}} {
		lab, err := newNatLab()
		check(err)
		b := time.Now()
		if v.ipt == "none" {
		} else if v.ipt == "" {
			check(lab.hawser(ctx, v.n, v.slots))
		} else {
			check(lab.iptables(v.ipt, v.n))
		}
		fmt.Println(v.name, "setup", time.Since(b))
		_, err = lab.server.accept(natPort)
		check(err)
		vs = append(vs, &variant{name: v.name, lab: lab, n: v.n})
	}
	const count = 10000
	for range 7 {
		for _, v := range vs {
			targets := make([]netip.AddrPort, v.n)
			for i := range targets {
				targets[i] = netip.AddrPortFrom(nth(natVIPs, i+1), natPort)
				if v.name == "none" {
					targets[i] = netip.AddrPortFrom(nth(natExports, i+1), natPort)
				}
			}
			check(v.lab.node.forget())
			f := func() (time.Duration, error) { return v.lab.client.connect(targets, count) }
			if len(os.Args) > 1 {
				f = func() (time.Duration, error) { return v.lab.flood(targets, count) }
			}
			took, err := f()
			check(err)
			v.times = append(v.times, took)
		}
	}
	for _, v := range vs {
		slices.Sort(v.times)
		m := v.times[len(v.times)/2]
		fmt.Printf("%-12s %8.0f/s  %v min %v\n", v.name, count/m.Seconds(), m/count, v.times[0]/count)
	}
}
