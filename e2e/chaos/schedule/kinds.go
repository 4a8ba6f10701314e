package schedule

// Kind is one kind of fault. Begin and End name what the lab does for it; those
// that are no fault of the lab are done by the driver.
type Kind struct {
	Name      string
	Begin     string // fault of the lab, or of the driver
	End       string // what mends it; empty = it mends itself
	Side      string // wan | lan; empty = not about a link
	Direction string // in | out, as the node sees it; empty = both

	weight int
	values []string // one is drawn; of delay, loss and mtu
	on     func(Topology) []target
}

// target is something that a fault can be done to.
type target struct {
	name  string
	holds []string
}

// What the driver does itself.
const (
	Drain   = "drain"       // hawser-agent drain on a gateway
	Undrain = "undrain"     // and back
	Export  = "add-export"  // a commit adds an export, a later one removes it
	Join    = "add-gateway" // a commit adds a gateway with its node, a later one removes it
	Revert  = "revert"      // the commit that takes it back
)

// Kinds lists all kinds, in a fixed order: it is part of what a seed means.
func Kinds() []Kind {
	delays, losses, sizes := []string{"3ms", "10ms", "30ms"}, []string{"5%", "20%", "60%"}, []string{"1280", "1400"}
	return []Kind{
		{Name: "kill-agent", Begin: "kill-agent", End: "start-agent", weight: 6, on: nodes(mortal)},
		{Name: "restart-agent", Begin: "restart-agent", weight: 6, on: nodes(mortal)},
		{Name: "cut-wan", Begin: "cut", End: "heal", Side: "wan", weight: 7, on: nodes(gateway)},
		{Name: "cut-lan", Begin: "cut", End: "heal", Side: "lan", weight: 6, on: nodes(any)},
		{Name: "delay-wan", Begin: "delay", End: "heal", Side: "wan", values: delays, weight: 3, on: nodes(gateway)},
		{Name: "delay-lan", Begin: "delay", End: "heal", Side: "lan", values: delays, weight: 2, on: nodes(any)},
		{Name: "loss-wan", Begin: "loss", End: "heal", Side: "wan", values: losses, weight: 4, on: nodes(gateway)},
		{Name: "loss-lan", Begin: "loss", End: "heal", Side: "lan", values: losses, weight: 3, on: nodes(any)},
		{Name: "cut-wan-in", Begin: "cut", End: "heal", Side: "wan", Direction: "in", weight: 3, on: nodes(gateway)},
		{Name: "cut-wan-out", Begin: "cut", End: "heal", Side: "wan", Direction: "out", weight: 3, on: nodes(gateway)},
		{Name: "cut-lan-in", Begin: "cut", End: "heal", Side: "lan", Direction: "in", weight: 2, on: nodes(any)},
		{Name: "cut-lan-out", Begin: "cut", End: "heal", Side: "lan", Direction: "out", weight: 2, on: nodes(any)},
		{Name: "loss-wan-in", Begin: "loss", End: "heal", Side: "wan", Direction: "in", values: losses, weight: 2, on: nodes(gateway)},
		{Name: "loss-lan-out", Begin: "loss", End: "heal", Side: "lan", Direction: "out", values: losses, weight: 2, on: nodes(any)},
		{Name: "mtu-wan", Begin: "mtu", End: "heal", Side: "wan", values: sizes, weight: 3, on: nodes(gateway)},
		{Name: "freeze-agent", Begin: "freeze-agent", End: "thaw-agent", weight: 3, on: nodes(any)},
		{Name: "upgrade-agent", Begin: "upgrade-agent", weight: 3, on: nodes(mortal)},
		{Name: "stop-agent", Begin: "stop-agent", End: "start-agent", weight: 2, on: nodes(mortal)},
		{Name: "kill-tunnel", Begin: "kill-tunnel", weight: 4, on: nodes(gateway)},
		{Name: "freeze-tunnel", Begin: "freeze-tunnel", End: "thaw-tunnel", weight: 3, on: nodes(gateway)},
		{Name: "lose-tunnels", Begin: "lose-tunnels", End: "heal", weight: 3, on: nodes(gateway)},
		{Name: "kill-gateway", Begin: "kill-gateway", End: "start-agent", weight: 3, on: nodes(both(gateway, mortal))},
		{Name: "reboot", Begin: "reboot", weight: 2, on: nodes(powered)},
		{Name: "power", Begin: "power-off", End: "power-on", weight: 6, on: nodes(powered)},
		{Name: "stop-sync", Begin: "stop-sync", End: "start-sync", weight: 2, on: clusters},
		{Name: "corrupt-fabric", Begin: "corrupt-fabric", End: "start-sync", weight: 2, on: withSync},
		{Name: "drain", Begin: Drain, End: Undrain, weight: 5, on: nodes(gateway)},
		{Name: "export", Begin: Export, End: Revert, weight: 2, on: repository},
		{Name: "gateway", Begin: Join, End: Revert, weight: 1, on: repository},
	}
}

// KindOf finds a kind by its name.
func KindOf(name string) (Kind, bool) {
	for _, k := range Kinds() {
		if k.Name == name {
			return k, true
		}
	}
	return Kind{}, false
}

func any(Node) bool       { return true }
func gateway(n Node) bool { return n.Gateway }
func mortal(n Node) bool  { return !n.NeverKilled }
func powered(n Node) bool { return !n.Holds && !n.NeverKilled }

func both(a, b func(Node) bool) func(Node) bool {
	return func(n Node) bool { return a(n) && b(n) }
}

func nodes(fit func(Node) bool) func(Topology) []target {
	return func(t Topology) []target {
		var out []target
		for _, n := range t.Nodes {
			if fit(n) {
				out = append(out, target{n.ID, []string{n.ID}})
			}
		}
		return out
	}
}

func clusters(t Topology) []target {
	var out []target
	for _, name := range t.Clusters {
		out = append(out, target{name, []string{"sync " + name}})
	}
	return out
}

// withSync are nodes together with the sync of their cluster, which would mend
// the node's files.
func withSync(t Topology) []target {
	var out []target
	for _, n := range t.Nodes {
		out = append(out, target{n.ID, []string{n.ID, "sync " + n.Cluster}})
	}
	return out
}

func repository(Topology) []target { return []target{{"", []string{"repository"}}} }

// TakesPower reports whether a kind of fault takes a node away with all that is on it.
func TakesPower(kind string) bool {
	k, _ := KindOf(kind)
	return k.Begin == "power-off" || k.Begin == "reboot"
}
