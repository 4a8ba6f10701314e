package migration

import (
	"slices"
	"time"
)

// State is what a pair is doing.
type State uint8

// The states of a pair. In each of them it takes packets on all tunnels that it holds.
const (
	Active        State = iota // it has one tunnel, and sends over that
	Verifying                  // another tunnel stands, or is made, beside the one in use, and is asked over
	SwitchingOver              // it is decided to send over another tunnel; the kernel does not yet
	Retiring                   // tunnels that are not needed stay until the other end has left them, too
)

// String gives the name as in code.
func (s State) String() string { return [...]string{"Active", "Proving", "CuttingOver", "Retiring"}[s] }

// transition is one of a table of transitions: in one of the states, when something holds,
// something is done, and the state is another one.
type transition[S ~uint8, On any] struct {
	from   []S
	when   string // for people
	guard  func(On, time.Time) bool
	then   string // for people; empty = nothing is done
	action func(On, time.Time)
	to     S
}

// fire takes the first row of a table that holds in a state. It reports false when none does.
func fire[S ~uint8, On any](table []transition[S, On], state S, on On, now time.Time) (to S, ok bool) {
	for i := range table {
		if r := &table[i]; slices.Contains(r.from, state) && r.guard(on, now) {
			if r.action != nil {
				r.action(on, now)
			}
			return r.to, true
		}
	}
	return state, false
}

// pairTransitions is the table of a pair. The move of an endpoint is in it too: it makes the
// secondary tunnel the next one, and then the wanted one again. docs/gateways.md shows the
// table.
func pairTransitions() []transition[State, *Pair] {
	return []transition[State, *Pair]{
		{[]State{Active, Verifying, Retiring}, "the kernel sends over another tunnel than the one to use, or that is not known after a start", (*Pair).kernelBehind, "", nil, SwitchingOver},
		{[]State{SwitchingOver, Verifying, Retiring}, "the tunnel in use answers no more, and both ends proved another one", (*Pair).failed, "use that one", (*Pair).useOther, SwitchingOver},
		{[]State{SwitchingOver}, "the kernel sends over the tunnel to use", (*Pair).kernelInSync, "", nil, Retiring},
		{[]State{Active, Verifying, Retiring}, "the next tunnel is not there, and nothing is in its place", (*Pair).targetMissing, "make it beside the others", (*Pair).make, Verifying},
		{[]State{Active, Retiring}, "the next tunnel is there, and not in use", (*Pair).differs, "", nil, Verifying},
		{[]State{Verifying}, "both ends proved the next tunnel", (*Pair).agreed, "use it", (*Pair).useNext, SwitchingOver},
		{[]State{Verifying}, "the other end sends over another tunnel only, which both proved, and it sorts first", (*Pair).endsDiverged, "use that one", (*Pair).joinPeer, SwitchingOver},
		{[]State{Verifying}, "the next tunnel is the one in use", (*Pair).arrived, "", nil, Retiring},
		{[]State{Active, Retiring}, "there is no history, and the link is down for 30 s", (*Pair).shouldTrySecondary, "make the secondary tunnel beside it", (*Pair).trySecondary, Retiring},
		{[]State{Retiring}, "one tunnel is left", (*Pair).single, "", nil, Active},
	}
}

// Stage is how far this end has told the other one of a tunnel.
type Stage uint8

// The stages of a tunnel at one end.
const (
	Unannounced Stage = iota // the other end cannot use it yet: it never read that it works
	Announced                // the other end may have read that it works here
	Withdrawing              // messages say that this end gives it up
	Withdrawn                // the other end read that, and does not use it
	Removed                  // it is held no more
)

// String gives the name as in code.
func (s Stage) String() string {
	return [...]string{"Fresh", "Offered", "Leaving", "Released", "Gone"}[s]
}

// pairTunnel is a hold of a pair.
type pairTunnel struct {
	*localTunnel
	pair *Pair
}

// tunnelTransitions is the table of each tunnel of a pair.
func tunnelTransitions() []transition[Stage, pairTunnel] {
	return []transition[Stage, pairTunnel]{
		{[]Stage{Unannounced}, "a message said that it is proved, or in use", pairTunnel.isAnnounced, "", nil, Announced},
		{[]Stage{Unannounced}, "it is neither next nor in use", pairTunnel.unneeded, "", nil, Removed},
		{[]Stage{Announced}, "it is neither next nor in use", pairTunnel.unneeded, "say so", pairTunnel.withdraw, Withdrawing},
		{[]Stage{Withdrawing, Withdrawn}, "it is next, or in use, again", pairTunnel.needed, "say so no more", pairTunnel.cancelWithdraw, Announced},
		{[]Stage{Withdrawing}, "the other end read that, and does not use it", pairTunnel.peerReleased, "", pairTunnel.release, Withdrawn},
		{[]Stage{Withdrawn}, "the other end uses it again", pairTunnel.peerUses, "", nil, Withdrawing},
		{[]Stage{Withdrawn}, "5 s are over", pairTunnel.expired, "", nil, Removed},
	}
}
