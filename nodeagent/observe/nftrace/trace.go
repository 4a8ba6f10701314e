// Package nftrace traces packets of the clusterset through the node's netfilter hooks and
// reports what dropped them: a NetworkPolicy, a firewall, or Hawser itself. It changes no
// verdict. It marks a few packets per second for nf_tables tracing (meta nftrace), so the
// kernel reports them. Its table disappears with the process.
package nftrace

import (
	"net/netip"
	"strconv"
	"time"
)

// Table is the name of the inet table with the marking rules during a capture.
const Table = "hawser-trace"

// Chains of Table: where a trace begins, and where a packet has passed.
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
	Queued // to a program (NFQUEUE)
)

// Step is one rule, or the policy of one chain, that a packet met.
type Step struct {
	At      time.Duration // since the start of the capture
	ID      uint32        // of the packet; the kernel reuses IDs
	Rule    RuleRef
	Verdict Verdict
	Flow    *Flow // nil = not in this step
}

// RuleRef is a rule or a policy.
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
	In, Out  string         // interfaces; empty = none or not known yet
	Reset    bool           // of TCP
}

func end(a netip.AddrPort) string {
	if a.Port() == 0 {
		return a.Addr().String()
	}
	return a.String()
}
