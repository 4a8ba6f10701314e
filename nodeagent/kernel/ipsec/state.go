package ipsec

import (
	"context"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/kernel/ipsec/vici"
)

// State is the state of one connection as reported by charon.
type State struct {
	Up         bool           // the connection can carry packets
	Connecting bool           // an exchange is in progress
	Since      time.Time      // time when Up became true
	Endpoint   netip.AddrPort // of the remote gateway
	Cipher     string         // for example AES_GCM_16-256
	UDPEncap   bool           // ESP is in UDP
	SPIIn      string         // hexadecimal
	SPIOut     string
	Rekeys     int // ESP rekeyings that the agent observed since Up became true
}

// readStates returns the state of each connection of the agent that has an IKE SA, by name.
func readStates(ctx context.Context, client *vici.Client) (map[string]State, error) {
	out := map[string]State{}
	err := client.Stream(ctx, "list-sas", "list-sa", vici.Section{"noblock": "yes"}, func(s vici.Section) error {
		for name := range s {
			if strings.HasPrefix(name, desired.IPsecPrefix) {
				out[name] = out[name].merge(parseState(s.Sub(name)))
			}
		}
		return nil
	})
	return out, err
}

// merge merges the states of two IKE SAs of one connection.
func (s State) merge(other State) State {
	if s.Up {
		return s
	}
	other.Connecting = other.Connecting || s.Connecting
	return other
}

func parseState(ike vici.Section) State {
	s := State{}
	switch ike.Text("state") {
	case "CONNECTING", "CREATED", "PASSIVE":
		s.Connecting = true
	case "ESTABLISHED", "REKEYING":
	default:
		return s // about to be deleted
	}
	if host, err := netip.ParseAddr(ike.Text("remote-host")); err == nil {
		port, _ := strconv.ParseUint(ike.Text("remote-port"), 10, 16)
		s.Endpoint = netip.AddrPortFrom(host, uint16(port))
	}
	newest := -1
	children := ike.Sub("child-sas")
	for name := range children {
		child := children.Sub(name)
		id, _ := strconv.Atoi(child.Text("uniqueid"))
		switch state := child.Text("state"); {
		case (state == "INSTALLED" || state == "REKEYING" || state == "UPDATING") && id > newest:
			newest = id
			s.Up, s.UDPEncap = true, child.Text("encap") == "yes"
			s.SPIIn, s.SPIOut = child.Text("spi-in"), child.Text("spi-out")
			s.Cipher = cipher(child.Text("encr-alg"), child.Text("encr-keysize"))
		case state == "CREATED" || state == "ROUTED" || state == "INSTALLING" || state == "RETRYING":
			s.Connecting = true
		}
	}
	if len(ike.List("tasks-active"))+len(ike.List("tasks-queued")) > 0 {
		s.Connecting = true
	}
	return s
}

func cipher(alg, bits string) string {
	if bits == "" {
		return alg
	}
	return alg + "-" + bits
}
