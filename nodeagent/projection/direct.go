package projection

import (
	"net/netip"
	"slices"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// directTo returns the direct path to a node in a family; nil if packets pass in VXLAN.
func (v *builder) directTo(n *model.Node, fam int) *model.DirectNode {
	a, ok := ofFamily(n.Addrs, fam)
	if d := v.activeDirect[a]; ok && d != nil && d.Node == n.Name {
		return d
	}
	return nil
}

// indexDirect indexes the nodes to which this node sends directly.
func (v *builder) indexDirect() {
	v.activeDirect = map[netip.Addr]*model.DirectNode{}
	for i := range v.in.Direct {
		if d := &v.in.Direct[i]; d.Active {
			v.activeDirect[d.Addr] = d
		}
	}
}

// addDirect adds the rules and set elements that allow packets without VXLAN from and to other
// nodes. They also exist while a pair of nodes uses VXLAN. If the pair changes its path, only
// routes change.
func (v *builder) addDirect() {
	if v.node == nil {
		return
	}
	origin := clusterPath(v.self.Name) + ".nodeNetwork"
	var devices []string
	senders := DirectSenders(v.in.Direct)
	for _, d := range v.in.Direct {
		fam := fabric.Family(d.Addr)
		if v.self.NodeNetwork == fabric.NodeDirect && !d.Active && v.usesFamily(fam) {
			v.problem(origin, status.NodeNeedsVXLAN, "packets to node "+d.Node+" need VXLAN: "+d.Reason)
		}
		if d.Device == "" {
			continue
		}
		if !v.usesFamily(fam) || v.vxlanDropped[d.Node] || v.nodeNamed(d.Node) == nil {
			continue
		}
		if v.gateway == nil {
			v.elements.add(desired.Element{Set: desired.SetGatewayHops, Family: fam, ID: d.Addr.String() + " . " + d.Device, Origin: origin})
			continue
		}
		v.elements.add(desired.Element{Set: desired.SetNodeHops, Family: fam, ID: d.Addr.String() + " . " + d.Device, Origin: origin})
		if id := desired.ReturnID(d.MAC); senders[d.MAC] {
			v.elements.add(desired.Element{
				Set: desired.SetSenders, Family: fam, ID: id + " . " + d.Device, Value: desired.ReturnID(hardwareAddr(d.Node)), Origin: origin,
			})
		}
		if !slices.Contains(devices, d.Device) {
			devices = append(devices, d.Device)
		}
	}
	if len(devices) > 0 {
		v.addRule(desired.Rule{
			Priority: desired.RuleDirectTest, IIF: desired.NodeDevice, UDPPort: desired.ProbePort, Table: desired.TableMain, Origin: origin,
		})
	}
	// Packets that a node hands over directly leave over this gateway's own links, like packets
	// in VXLAN.
	for _, device := range devices {
		v.addRule(desired.Rule{Priority: desired.RuleGateway, IIF: device, Table: desired.TableGateway, Origin: v.gatewayPath()})
	}
}

// DirectSenders returns the hardware addresses that identify one node each. If two nodes have the
// same last four bytes, both need VXLAN: a node could report the address of another node to get its
// replies.
func DirectSenders(nodes []model.DirectNode) map[string]bool {
	owners := map[string]string{} // by ReturnID; empty = several
	for _, d := range nodes {
		id := desired.ReturnID(d.MAC)
		if owner, known := owners[id]; known && owner != d.Node {
			owners[id] = ""
		} else {
			owners[id] = d.Node
		}
	}
	out := map[string]bool{}
	for _, d := range nodes {
		if id := desired.ReturnID(d.MAC); id != "" && owners[id] == d.Node {
			out[d.MAC] = true
		}
	}
	return out
}

// NodeMAC returns the hardware address of a node on desired.NodeDevice.
func NodeMAC(node string) string { return hardwareAddr(node) }
