package nodeagent

import (
	"fmt"
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

// kernelESP reports whether the kernel encrypts; where there is no IPsec nobody asks it.
func (a *Agent) kernelESP(f *fabric.Fabric) bool {
	return slices.Contains(f.Drivers(a.config.Cluster), fabric.DriverIPsec) && a.charon.InKernel()
}

// describeIPsec adds to a connection what charon tells of it.
func (a *Agent) describeIPsec(c *status.Connection, s ipsec.State) {
	c.Driver = "ipsec (userspace)"
	if a.charon.InKernel() {
		c.Driver = "ipsec (kernel)"
	}
	if s.Endpoint.IsValid() {
		c.Endpoint = s.Endpoint.String()
	}
	if !s.Up {
		return
	}
	c.Security = &status.Security{
		Cipher: s.Cipher, InUDP: s.InUDP, SPIIn: s.SPIIn, SPIOut: s.SPIOut, Since: s.Since, Rekeys: s.Rekeys,
	}
}

// ipsecName is how the connection to a remote gateway is called.
func ipsecName(cluster, gateway string) string {
	return fmt.Sprintf("%s%s.%s", desired.IPsecPrefix, cluster, gateway)
}
