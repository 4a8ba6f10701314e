package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/lab/underlayspec"
)

// runningRouter is a running router.
type runningRouter struct {
	ns     *netNS
	number int
	addrs  []netip.Addr
	routes map[route]bool
	rules  string
}

// Names of a router's interfaces: its ends of links in the underlay, and the inner bridge.
func outerPort(number int) string   { return fmt.Sprintf("o%d", number) }
func innerPort(number int) string   { return fmt.Sprintf("i%d", number) }
func innerBridge(number int) string { return fmt.Sprintf("in%d", number) }

func startRouter(t *routerSpec, path string, u *underlay) (*runningRouter, error) {
	// The router forwards packets, sends no redirects, and accepts packets from any interface.
	values := settings(true)
	for _, name := range []string{"all", "default"} {
		values["net/ipv4/conf/"+name+"/send_redirects"] = "0"
		values["net/ipv4/conf/"+name+"/rp_filter"] = "0"
	}
	s, err := newNetNS(path, values)
	if err != nil {
		return nil, err
	}
	g := &runningRouter{ns: s, number: t.number, routes: map[route]bool{}}
	err = errors.Join(
		u.bridge(innerBridge(t.number)),
		vethPair(u.netNS, outerPort(t.number), s, underlayspec.Out),
		vethPair(u.netNS, innerPort(t.number), s, underlayspec.In),
	)
	if err == nil {
		err = errors.Join(u.enslave(outerPort(t.number), "wan"), u.enslave(innerPort(t.number), innerBridge(t.number)))
	}
	for _, a := range t.inner {
		if err == nil {
			err = s.addAddress(underlayspec.In, cidr.Single(a))
		}
	}
	if err != nil {
		return nil, errors.Join(err, g.close(u))
	}
	return g, nil
}

func (g *runningRouter) close(u *underlay) error {
	return errors.Join(u.remove(outerPort(g.number)), u.remove(innerPort(g.number)), u.remove(innerBridge(g.number)), g.ns.close())
}

// reconfigure applies the router's specification.
func (g *runningRouter) reconfigure(t *routerSpec, w *desiredLab) error {
	var errs []error
	for _, a := range g.addrs {
		if !slices.Contains(t.Addresses, a) {
			errs = append(errs, g.ns.deleteAddress(underlayspec.Out, cidr.Single(a)))
		}
	}
	for _, a := range t.Addresses {
		errs = append(errs, g.ns.addAddress(underlayspec.Out, cidr.Single(a)))
	}
	errs = append(errs, setRoutes(g.ns, g.routes, t.routes(w)))
	if text := t.Rules(t.inside); text != g.rules {
		errs = append(errs, loadRules(g.ns.path, text))
		g.rules = text
	}
	if len(g.addrs) > 0 && !slices.Equal(g.addrs, t.Addresses) {
		// The mappings have the old address, and packets would refresh them forever.
		errs = append(errs, g.dropMappings())
	}
	g.addrs = t.Addresses
	return errors.Join(errs...)
}

// dropMappings drops all mappings, like a router after a power loss.
func (g *runningRouter) dropMappings() error {
	h, err := netlink.NewHandleAt(g.ns.ns, unix.NETLINK_NETFILTER)
	if err != nil {
		return fmt.Errorf("open netlink in %s: %w", g.ns.path, err)
	}
	defer h.Close()
	if g.rules != "" { // reload the rules, because they contain mappings too
		if err := loadRules(g.ns.path, g.rules); err != nil {
			return err
		}
	}
	if err := h.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
		return fmt.Errorf("forget mappings: %w", err)
	}
	return nil
}

// startRouters starts the missing routers.
func (d *daemon) startRouters(w *desiredLab) error {
	var errs []error
	for i := range w.sites {
		t := &w.sites[i]
		if d.routers[t.Name] != nil {
			continue
		}
		g, err := startRouter(t, d.layout.namespace(d.config, fmt.Sprintf("router%d", t.number)), d.underlay)
		if err != nil {
			errs = append(errs, fmt.Errorf("router %s: %w", t.Name, err))
			continue
		}
		d.routers[t.Name] = g
		d.events.add("router %s is up", t.Name)
	}
	return errors.Join(errs...)
}

// reconfigureRouters applies the specifications of all routers.
func (d *daemon) reconfigureRouters(w *desiredLab) error {
	var errs []error
	for i := range w.sites {
		t := &w.sites[i]
		if g := d.routers[t.Name]; g != nil {
			if err := g.reconfigure(t, w); err != nil {
				errs = append(errs, fmt.Errorf("router %s: %w", t.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}
