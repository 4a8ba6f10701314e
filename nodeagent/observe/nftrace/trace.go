// Package nftrace traces packets of the clusterset through the node's netfilter hooks. It reports
// which rule dropped them, and whether a NetworkPolicy, a firewall or Hawser owns the rule. It
// marks a few packets per second for nf_tables tracing (meta nftrace), so that the kernel reports
// them. It changes no verdict. The kernel deletes its table at the end of the capture, also if the
// process dies.
package nftrace

import (
	"net/netip"
	"strconv"
	"time"
)

// Table is the name of the inet table with the marking rules during a capture.
const Table = "hawser-trace"

// Chains of Table. A trace starts in the first two, and a packet has passed in the next two.
const (
	chainIn     = "in"    // prerouting, before all other chains
	chainOutput = "made"  // output, before all other chains
	chainOut    = "out"   // postrouting, after all other chains
	chainInput  = "taken" // input, after all other chains
	chainOnly   = "only"  // no hook: packets of the clusterset, if Filter.Include is set
	chainPick   = "pick"  // no hook: the selected packets
)

// Verdict is the result of a step.
type Verdict int

// Verdicts. A step without a decision is Continues.
const (
	Continues Verdict = iota
	Accepted
	Dropped
	Queued // passed to a program (NFQUEUE)
)

// Step is one rule, or the policy of one chain, that a packet met.
type Step struct {
	At      time.Duration // since the start of the capture
	ID      uint32        // of the packet; the kernel reuses IDs
	Rule    RuleRef
	Verdict Verdict
	Flow    *Flow // nil = the step has no headers
}

// RuleRef names a rule, or the policy of a chain.
type RuleRef struct {
	Family string // ip | ip6 | inet | ...
	Table  string
	Chain  string
	Rule   uint64 // handle; 0 = the chain's policy
}

// String returns the rule in the notation of nft(8).
func (p RuleRef) String() string {
	of := "chain " + p.Chain + " of table " + p.Family + " " + p.Table
	if p.Rule == 0 {
		return "the policy of " + of
	}
	return "rule " + strconv.FormatUint(p.Rule, 10) + " in " + of
}

// Flow is the header data of a packet.
type Flow struct {
	Protocol string         // tcp | udp | icmp | icmpv6 | a number
	From, To netip.AddrPort // port 0 if absent
	In, Out  string         // interfaces; empty = none or still unknown
	Reset    bool           // a TCP reset
}

func end(a netip.AddrPort) string {
	if a.Port() == 0 {
		return a.Addr().String()
	}
	return a.String()
}
