package nodeagent

import (
	"slices"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/ipsec"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// connectionsWanted gives the IPsec connections of the last pass.
func (a *Agent) connectionsWanted() []desired.IPsec {
	if n := a.shown.Load().node; n != nil {
		return n.IPsecs
	}
	return nil
}

// kernelESP reports whether the kernel encrypts; where there is no IPsec, and none
// is on its way out, nobody asks it.
func (a *Agent) kernelESP(f *fabric.Fabric) bool {
	needed := slices.Contains(f.Drivers(a.config.Cluster), fabric.DriverIPsec) || a.cabling.Holds(fabric.DriverIPsec)
	return needed && a.charon.InKernel()
}

// describeIPsec adds to a cable what charon tells of its connection.
func (a *Agent) describeIPsec(c *cableState, s ipsec.State) {
	c.driver = "ipsec (userspace)"
	if a.charon.InKernel() {
		c.driver = "ipsec (kernel)"
	}
	if s.Endpoint.IsValid() {
		c.endpoint = s.Endpoint.String()
	}
	if s.Up {
		c.security = &status.Security{
			Cipher: s.Cipher, InUDP: s.InUDP, SPIIn: s.SPIIn, SPIOut: s.SPIOut, Since: s.Since, Rekeys: s.Rekeys,
		}
	}
}
