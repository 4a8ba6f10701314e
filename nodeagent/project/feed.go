package project

import (
	"net/netip"
	"slices"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/schema/fabric"
)

// Feeds run from end to end, between addresses in the tunnels, and go where the
// traffic of the two clusters goes. Everything else between these addresses takes
// the pair's own link, be it dead or alive: probes, as they have to find out; and
// what is passed on, of which these addresses are the outside.

// around reports whether a neighbour is reached through others.
func (r *remote) around() bool { return r.linked && r.reachable && r.path.Via != "" }

// addFeedRules sends feeds through TableFeed while there is anything in it: for a
// rule with ports the kernel looks into every packet that it routes.
func (v *view) addFeedRules() {
	if v.gateway == nil || !slices.ContainsFunc(v.remotes, (*remote).around) {
		return
	}
	for _, six := range []bool{false, true} {
		if six && !v.v6 || !six && !v.v4 {
			continue
		}
		to := desired.Rule{
			Priority: desired.RuleFeed, IPv6: six, IIF: "lo", TCPPort: desired.FeedPort, Table: desired.TableFeed, Origin: v.gatewayPath(),
		}
		from := to
		from.Priority, from.TCPPort, from.TCPFrom = desired.RuleFeed+1, 0, desired.FeedPort
		v.state.Rules = append(v.state.Rules, to, from)
	}
}

// routeFar routes the tunnel addresses of a cluster that is reached through
// others: those of a neighbour for feeds alone.
func (v *view) routeFar(r *remote) {
	for _, dst := range r.tunnels() {
		fam := fabric.Family(dst.Addr())
		if !v.uses(fam) {
			continue
		}
		src, _ := ofFamily(v.gateway.Addresses, fam)
		route := desired.Route{Table: desired.TableOut, Dst: dst, Type: desired.RouteUnicast, Src: src, Origin: clusterPath(r.Name)}
		if r.linked {
			route.Table = desired.TableFeed
		}
		if c, ok := v.passTo(r, r.transit); ok && r.ownLink {
			route.Link, route.Via, route.MTU = c.Link, c.Via(fam), v.passMTU(c, r.transit)
		} else if via, ok := v.mateOn(r, fam); ok {
			route.Link, route.Via = desired.MateLink, via
		} else {
			route.Type, route.Src = desired.RouteBlackhole, netip.Addr{}
		}
		v.route(route)
	}
}
