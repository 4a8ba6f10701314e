// Package nftrace follows packets of the clusterset through the node's netfilter hooks
// and reports who dropped them: a NetworkPolicy, a firewall, or Hawser itself. It changes
// no verdict; it marks a few packets a second so that the kernel reports them
// (nf_tables' tracing, meta nftrace), and what it puts into the kernel for that
// vanishes with the process.
package nftrace

import (
	"net/netip"
	"strconv"
	"time"
)

// Table is the name of the table of family inet that holds the marking rules while
// packets are followed.
const Table = "hawser-trace"

// Chains of Table: where a journey begins, and where one that gets there got through.
const (
	chainIn     = "in"    // prerouting, before all others
	chainOutput = "made"  // output, before all others
	chainOut    = "out"   // postrouting, behind all others
	chainInput  = "taken" // input, behind all others
	chainOnly   = "only"  // no hook: packets of the clusterset, when not all are asked for
	chainPick   = "pick"  // no hook: those that are asked for
)

// Verdict is what became of a packet in a step.
type Verdict int

// Verdicts; all that decide nothing yet are Continues.
const (
	Continues Verdict = iota
	Accepted
	Dropped
	Queued // to a program (NFQUEUE)
)

// Step is one rule, or the policy of one chain, that a packet met.
type Step struct {
	At      time.Duration // since the beginning
	ID      uint32        // of the packet; the kernel uses them again
	Place   RuleRef
	Verdict Verdict
	Flow    *Flow // nil = not told in this step
}

// RuleRef is a rule or a policy.
type RuleRef struct {
	Family string // ip | ip6 | inet | ...
	Table  string
	Chain  string
	Rule   uint64 // handle; 0 = the chain's policy
}

// String is as nft(8) names it.
func (p RuleRef) String() string {
	of := "chain " + p.Chain + " of table " + p.Family + " " + p.Table
	if p.Rule == 0 {
		return "the policy of " + of
	}
	return "rule " + strconv.FormatUint(p.Rule, 10) + " in " + of
}

// Flow is what a packet says of itself.
type Flow struct {
	Protocol string         // tcp | udp | icmp | icmpv6 | a number
	From, To netip.AddrPort // port 0 where there is none
	In, Out  string         // interfaces; empty = none (yet)
	Reset    bool           // of TCP
}

func end(a netip.AddrPort) string {
	if a.Port() == 0 {
		return a.Addr().String()
	}
	return a.String()
}
