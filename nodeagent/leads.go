package nodeagent

import (
	"hawser.dev/hawser/nodeagent/project"
	"hawser.dev/hawser/schema/fabric"
)

// leads reports whether this end looks for better places while the link is up. With
// VXLAN each end chooses for what it sends itself. With IPsec nobody does: the link
// stays where it came up. The way back would be a second connection, and in userspace
// links were seen to carry nothing for seconds when one of two ended (ADR 12).
func leads(in project.Input, own *fabric.Gateway, r project.Reach) bool {
	switch r.Driver {
	case fabric.DriverVXLAN:
		return true
	case fabric.DriverIPsec:
		return false
	}
	return in.Cluster < r.Cluster || len(own.Endpoints) == 0
}
