package desired

import (
	"encoding/base64"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/schema/fabric"
)

// Names and IDs of the kernel objects for IPsec.
const (
	// IPsecPrefix is the name prefix of all connections that the agent manages.
	IPsecPrefix = "hawser-"
	// IPsecDevice is the device where packets enter and leave ESP. It is an xfrm interface, or
	// the TUN device of Hawser's own charon. charon always chooses this name.
	IPsecDevice = "ipsec0"
	// IPsecOverlayPrefix is the name prefix of the VXLAN devices inside ESP. The outer IP family and
	// -port follow.
	IPsecOverlayPrefix = "hw-ip"
	// IPsecEvenOverlayPrefix is the name prefix of the VXLAN devices in connections of even key
	// epochs, and in alternate connections of odd epochs. IPsecEvenVNI is their VNI.
	IPsecEvenOverlayPrefix = "hw-iq"
	IPsecEvenVNI           = 76
	// IPsecIfID is the if_id of the xfrm interface and of its policies.
	IPsecIfID = 73
)

// IPsec is a charon connection to one remote gateway: an IKEv2 SA with one ESP tunnel, between
// one address of each gateway.
type IPsec struct {
	Name string // starts with IPsecPrefix
	// Remote is the endpoint of the remote gateway; invalid if the remote gateway initiates.
	Remote    netip.AddrPort
	LocalPort int
	LocalID   string // IKE identities
	RemoteID  string
	// PrivateKey is the seed of this gateway's Ed25519 key. PublicKey is the remote gateway's
	// key in base64.
	PrivateKey fabric.Secret
	PublicKey  string
	LocalAddr  netip.Addr // inside ESP
	RemoteAddr netip.Addr
	// Initiator is true if this gateway initiates the connection and rekeys it.
	Initiator     bool
	Encapsulation string        // fabric.EncapsulationAuto ...
	Proposals     []string      // fabric.ProposalAESGCM ..., in order of preference
	Rekey         time.Duration // age at which the ESP keys are replaced
	Origin        string
}

// IPsecName returns the name of the connection to a remote gateway with the keys of an epoch.
// The name includes the epoch, unless it is the first. alternate selects the connection of the
// secondary tunnel.
func IPsecName(cluster, gateway string, epoch int, alternate bool) string {
	name := IPsecPrefix + cluster + "." + gateway
	if epoch > 1 {
		name += ".e" + strconv.Itoa(epoch)
	}
	if alternate {
		name += ".alt"
	}
	return name
}

// Key returns the name of the connection.
func (c IPsec) Key() string { return c.Name }

// Fields returns the configuration; the private key is never printed.
func (c IPsec) Fields() []diff.Field {
	remote, proposals := "", strings.Join(c.Proposals, ",")
	if c.Remote.IsValid() {
		remote = c.Remote.String()
	}
	return []diff.Field{
		{Name: "remote", Value: remote},
		{Name: "localPort", Value: number(c.LocalPort)},
		{Name: "localID", Value: c.LocalID},
		{Name: "remoteID", Value: c.RemoteID},
		{Name: "privateKey", Value: encodeSecret(c.PrivateKey), Secret: true},
		{Name: "publicKey", Value: c.PublicKey},
		{Name: "localAddr", Value: addr(c.LocalAddr)},
		{Name: "remoteAddr", Value: addr(c.RemoteAddr)},
		{Name: "begins", Value: strconv.FormatBool(c.Initiator)},
		{Name: "encapsulation", Value: c.Encapsulation},
		{Name: "proposals", Value: proposals},
		{Name: "rekey", Value: duration(c.Rekey)},
	}
}

// encodeSecret returns the key in base64; empty if absent.
func encodeSecret(key fabric.Secret) string {
	if key == (fabric.Secret{}) {
		return ""
	}
	return base64.StdEncoding.EncodeToString(key[:])
}

func duration(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}
