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

// Names and numbers of IPsec.
const (
	// IPsecPrefix begins the name of every connection of ours.
	IPsecPrefix = "hawser-"
	// IPsecLink is where packets enter and leave ESP: the TUN device of our own
	// charon, which takes this name by itself, or an xfrm interface.
	IPsecLink = "ipsec0"
	// IPsecOverlay begins the names of the VXLAN devices whose packets ESP carries;
	// the outer family and -port follow.
	IPsecOverlay = "hw-ip"
	// IPsecEvenOverlay and IPsecEvenID are names and VNI of those in connections of
	// even key epochs, and in those beside the usual one of odd epochs.
	IPsecEvenOverlay = "hw-iq"
	IPsecAltVNI      = 76
	// IPsecIfID is the number of the xfrm interface and of the policies that it sees.
	IPsecIfID = 73
)

// IPsec is one connection of charon: IKEv2 with one remote gateway, and in it one
// ESP tunnel between one address of each.
type IPsec struct {
	Name string // IPsecPrefix and more
	// Remote is where the other gateway listens; not valid = it begins.
	Remote    netip.AddrPort
	LocalPort int
	LocalID   string // IKE identities
	RemoteID  string
	// PrivateKey is the seed of our Ed25519 key, PublicKey the other's, base64.
	PrivateKey fabric.Secret
	PublicKey  string
	LocalAddr  netip.Addr // inside ESP
	RemoteAddr netip.Addr
	// Initiator says that this end opens the connection and replaces its keys.
	Initiator     bool
	Encapsulation string        // fabric.EncapsulationAuto ...
	Proposals     []string      // fabric.ProposalAESGCM ..., in order of preference
	Rekey         time.Duration // age at which the keys of ESP are replaced
	Origin        string
}

// IPsecName is how the connection to a remote gateway with the keys of an epoch is
// called; the first epoch is not named. beside = it is not the usual one.
func IPsecName(cluster, gateway string, epoch int, beside bool) string {
	name := IPsecPrefix + cluster + "." + gateway
	if epoch > 1 {
		name += ".e" + strconv.Itoa(epoch)
	}
	if beside {
		name += ".beside"
	}
	return name
}

// Key is the name.
func (c IPsec) Key() string { return c.Name }

// Fields gives the configuration; the private key never prints.
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
		{Name: "privateKey", Value: secretOrNone(c.PrivateKey), Secret: true},
		{Name: "publicKey", Value: c.PublicKey},
		{Name: "localAddr", Value: addr(c.LocalAddr)},
		{Name: "remoteAddr", Value: addr(c.RemoteAddr)},
		{Name: "begins", Value: strconv.FormatBool(c.Initiator)},
		{Name: "encapsulation", Value: c.Encapsulation},
		{Name: "proposals", Value: proposals},
		{Name: "rekey", Value: duration(c.Rekey)},
	}
}

// secretOrNone is empty for a key that is not there.
func secretOrNone(key fabric.Secret) string {
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
