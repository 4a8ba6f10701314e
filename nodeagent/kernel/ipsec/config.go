// Package ipsec manages strongSwan's charon for IPsec tunnels: it starts and supervises a
// charon, or uses the host's, and converges its connections. Keys and connections go to charon
// over its vici socket only. No secret is ever written to a file.
package ipsec

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/kernel/ipsec/vici"
	"hawser.dev/hawser/schema/fabric"
)

const (
	// ikeRekey is the interval of IKE rekeying, as a multiple of ESP's.
	ikeRekey = 4
	// dpdDelay is the silence of a peer before a liveness check (RFC 3706). The retransmission
	// timeouts apply to its reply.
	dpdDelay = 5 * time.Second
)

// connectionSection returns the connection in charon's format (swanctl.conf(5)). child is the name
// of its ESP tunnel.
func connectionSection(c *desired.IPsec, child string, kernel bool) (vici.Section, error) {
	ownKey, err := x509.MarshalPKIXPublicKey(publicKey(c.PrivateKey))
	if err != nil {
		return nil, fmt.Errorf("encode own public key: %w", err)
	}
	raw, err := base64.StdEncoding.DecodeString(c.PublicKey)
	if err != nil || len(raw) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("public key of %s is not 32 bytes of base64", c.RemoteID)
	}
	peerKey, err := x509.MarshalPKIXPublicKey(ed25519.PublicKey(raw))
	if err != nil {
		return nil, fmt.Errorf("encode public key of %s: %w", c.RemoteID, err)
	}
	// Only the initiator rekeys. If both ends rekey at once, one exchange loses, and packets
	// under its keys are lost.
	//
	// With a group in the proposal each rekeying has a separate key exchange (PFS).
	proposals, err := ciphers(c.Proposals, "-x25519")
	if err != nil {
		return nil, err
	}
	tunnel := vici.Section{
		"mode": "tunnel", "local_ts": []string{hostPrefix(c.LocalAddr)}, "remote_ts": []string{hostPrefix(c.RemoteAddr)},
		"esp_proposals": proposals, "rekey_time": "0s", "life_time": "0s", "rand_time": "0s",
		"dpd_action": "clear", "start_action": "none", "close_action": "none",
	}
	if c.Initiator {
		tunnel["start_action"], tunnel["rekey_time"] = "start", seconds(c.Rekey)
		tunnel["rand_time"] = seconds(c.Rekey / 10)
	}
	if kernel {
		tunnel["if_id_in"], tunnel["if_id_out"] = strconv.Itoa(desired.IPsecIfID), strconv.Itoa(desired.IPsecIfID)
	}
	s := vici.Section{
		"version": "2", "mobike": "no", "unique": "replace", "send_cert": "never", "send_certreq": "no",
		"dpd_delay": seconds(dpdDelay), "reauth_time": "0s", "rekey_time": "0s", "over_time": "0s", "keyingtries": "1",
		"local_addrs": []string{"%any"}, "local_port": strconv.Itoa(c.LocalPort),
		"remote_addrs": []string{"%any"},
		"encap":        yesNo(c.Encapsulation == fabric.EncapsulationUDP || !kernel),
		"local":        vici.Section{"auth": "pubkey", "id": c.LocalID, "pubkeys": []string{string(ownKey)}},
		"remote":       vici.Section{"auth": "pubkey", "id": c.RemoteID, "pubkeys": []string{string(peerKey)}},
		"children":     vici.Section{child: tunnel},
	}
	if c.Remote.IsValid() {
		s["remote_addrs"], s["remote_port"] = []string{c.Remote.Addr().String()}, strconv.Itoa(int(c.Remote.Port()))
	}
	switch {
	case c.Initiator:
		s["rekey_time"] = seconds(ikeRekey * c.Rekey)
	case c.Remote.IsValid():
		// The peer may initiate from any of its addresses. Its key authenticates it.
		s["remote_addrs"] = []string{c.Remote.Addr().String(), "%any"}
	}
	if s["proposals"], err = ciphers(c.Proposals, "-prfsha256-x25519"); err != nil {
		return nil, err
	}
	return s, nil
}

func ciphers(proposals []string, suffix string) ([]string, error) {
	names := map[string]string{fabric.ProposalAESGCM: "aes256gcm16", fabric.ProposalChaCha20: "chacha20poly1305"}
	out := make([]string, len(proposals))
	for i, p := range proposals {
		name, known := names[p]
		if !known {
			return nil, fmt.Errorf("unknown proposal %q", p)
		}
		out[i] = name + suffix
	}
	return out, nil
}

// childName encodes facts that charon does not report about a connection: the identifier of the
// own key and a digest of the configuration.
func childName(c *desired.IPsec, kernel bool) string {
	// The digest is keyed with the private key, so it reveals nothing about it.
	sum := hmac.New(sha256.New, c.PrivateKey[:])
	for _, f := range c.Fields() {
		if !f.Secret {
			fmt.Fprintf(sum, "%s=%q\n", f.Name, f.Value)
		}
	}
	fmt.Fprintf(sum, "kernel=%t\n", kernel)
	return "v1-" + hex.EncodeToString(sum.Sum(nil)[:8]) + "-" + keyID(publicKey(c.PrivateKey))
}

// childKey returns the identifier of the own key in a child name; empty if the name is not
// ours.
func childKey(child string) string {
	parts := strings.Split(child, "-")
	if len(parts) != 3 || parts[0] != "v1" {
		return ""
	}
	return parts[2]
}

func publicKey(seed fabric.Secret) ed25519.PublicKey {
	return ed25519.NewKeyFromSeed(seed[:]).Public().(ed25519.PublicKey)
}

// pkcs8 returns a private key in charon's format (RFC 8410, section 7): the seed after a fixed
// header.
func pkcs8(seed fabric.Secret) []byte {
	header := []byte{0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20}
	return append(header, seed[:]...)
}

// keyID returns charon's identifier of a key: the SHA-1 of its public half, without the
// algorithm (RFC 5280, section 4.2.1.2).
func keyID(key ed25519.PublicKey) string {
	sum := sha1.Sum(key)
	return hex.EncodeToString(sum[:])
}

func hostPrefix(a netip.Addr) string { return cidr.Single(a).String() }

func seconds(d time.Duration) string { return strconv.Itoa(int(d/time.Second)) + "s" }

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

// KernelESP reports whether the kernel supports ESP with AES-GCM in the current network
// namespace. It installs a key between two documentation addresses (RFC 5737), and removes it
// again.
func KernelESP() bool {
	h, err := netlink.NewHandle(unix.NETLINK_XFRM)
	if err != nil {
		return false
	}
	defer h.Close()
	testState := &netlink.XfrmState{
		Src: net.IPv4(192, 0, 2, 253), Dst: net.IPv4(192, 0, 2, 254), Proto: netlink.XFRM_PROTO_ESP,
		Mode: netlink.XFRM_MODE_TUNNEL, Spi: 0x73737373,
		Aead: &netlink.XfrmStateAlgo{Name: "rfc4106(gcm(aes))", Key: make([]byte, 36), ICVLen: 128},
	}
	if err := h.XfrmStateAdd(testState); err != nil {
		return false
	}
	return h.XfrmStateDel(testState) == nil
}
