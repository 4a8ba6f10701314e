package desired

import (
	"net/netip"
	"strconv"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/schema/fabric"
)

// Wireguard is the configuration of a WireGuard device.
type Wireguard struct {
	Device     string
	PrivateKey fabric.Secret
	ListenPort int
	Origin     string
}

// Key is the device's name.
func (w Wireguard) Key() string { return w.Device }

// Fields returns the configuration; the private key is never printed.
func (w Wireguard) Fields() []diff.Field {
	return []diff.Field{
		{Name: "privateKey", Value: secret(w.PrivateKey), Secret: true},
		{Name: "listenPort", Value: strconv.Itoa(w.ListenPort)},
	}
}

// Peer is one peer of a WireGuard device.
type Peer struct {
	Device    string
	PublicKey string // base64
	PSK       fabric.Secret
	// Endpoint is the first address of the peer to dial. While the peer replies, the address
	// that the kernel learned takes precedence (roaming). Invalid = the peer dials in.
	Endpoint   netip.AddrPort
	AllowedIPs []netip.Prefix // sorted
	Keepalive  int            // seconds; 0 = off
	// DialCount counts the decisions to dial Endpoint regardless of the address that the kernel
	// learned; 0 = never.
	DialCount int
	Origin    string
}

// Key is device/public key.
func (p Peer) Key() string { return p.Device + "/" + p.PublicKey }

// Fields returns the configuration; the pre-shared key is never printed.
func (p Peer) Fields() []diff.Field {
	endpoint := ""
	if p.Endpoint.IsValid() {
		endpoint = p.Endpoint.String()
	}
	fields := []diff.Field{
		{Name: "psk", Value: secret(p.PSK), Secret: true},
		{Name: "endpoint", Value: endpoint},
		{Name: "allowedIPs", Value: humanize.Join(p.AllowedIPs, ",")},
		{Name: "keepalive", Value: strconv.Itoa(p.Keepalive)},
	}
	if p.DialCount > 0 {
		fields = append(fields, diff.Field{Name: "dial", Value: strconv.Itoa(p.DialCount)})
	}
	return fields
}
