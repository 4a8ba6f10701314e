package schedule

// Kind is one kind of fault. Start and End name faults of the lab; the chaos command does the
// others itself.
type Kind struct {
	Name      string
	Start     string // fault of the lab, or an action of the chaos command
	End       string // action that ends the fault; empty: it ends by itself
	Side      string // wan | lan; empty: not a fault of a link
	Direction string // in | out, as the node sees it; empty: both

	weight int
	values []string // for delay, loss, mtu and Filter: the schedule draws one
	on     func(Topology) []target
}

// target is a possible target of a fault.
type target struct {
	name  string
	locks []string
}

// Actions of the chaos command.
const (
	Drain   = "drain"       // hawser-agent drain on a gateway
	Undrain = "undrain"     // hawser-agent undrain
	Export  = "add-export"  // a commit adds an export
	Join    = "add-gateway" // a commit adds a gateway on a node
	Revert  = "revert"      // a commit restores the topology
	Filter  = "filter"      // the switch drops sources at the port of a node
)

// Sources that Filter drops.
const (
	Clusters = "clusters" // global addresses of all clusters
	Pods     = "pods"     // addresses of this cluster's pods
)

// Kinds lists all kinds in a fixed order. A change of the order changes the schedule of a seed.
func Kinds() []Kind {
	delays, losses, sizes := []string{"3ms", "10ms", "30ms"}, []string{"5%", "20%", "60%"}, []string{"1280", "1400"}
	return []Kind{
		{Name: "kill-agent", Start: "kill-agent", End: "start-agent", weight: 6, on: nodes(killable)},
		{Name: "restart-agent", Start: "restart-agent", weight: 6, on: nodes(killable)},
		{Name: "cut-wan", Start: "cut", End: "heal", Side: "wan", weight: 7, on: nodes(gateway)},
		{Name: "cut-lan", Start: "cut", End: "heal", Side: "lan", weight: 6, on: nodes(any)},
		{Name: "delay-wan", Start: "delay", End: "heal", Side: "wan", values: delays, weight: 3, on: nodes(gateway)},
		{Name: "delay-lan", Start: "delay", End: "heal", Side: "lan", values: delays, weight: 2, on: nodes(any)},
		{Name: "loss-wan", Start: "loss", End: "heal", Side: "wan", values: losses, weight: 4, on: nodes(gateway)},
		{Name: "loss-lan", Start: "loss", End: "heal", Side: "lan", values: losses, weight: 3, on: nodes(any)},
		{Name: "cut-wan-in", Start: "cut", End: "heal", Side: "wan", Direction: "in", weight: 3, on: nodes(gateway)},
		{Name: "cut-wan-out", Start: "cut", End: "heal", Side: "wan", Direction: "out", weight: 3, on: nodes(gateway)},
		{Name: "cut-lan-in", Start: "cut", End: "heal", Side: "lan", Direction: "in", weight: 2, on: nodes(any)},
		{Name: "cut-lan-out", Start: "cut", End: "heal", Side: "lan", Direction: "out", weight: 2, on: nodes(any)},
		{Name: "loss-wan-in", Start: "loss", End: "heal", Side: "wan", Direction: "in", values: losses, weight: 2, on: nodes(gateway)},
		{Name: "loss-lan-out", Start: "loss", End: "heal", Side: "lan", Direction: "out", values: losses, weight: 2, on: nodes(any)},
		{Name: "mtu-wan", Start: "mtu", End: "heal", Side: "wan", values: sizes, weight: 3, on: nodes(gateway)},
		{Name: "freeze-agent", Start: "freeze-agent", End: "thaw-agent", weight: 3, on: nodes(any)},
		{Name: "upgrade-agent", Start: "upgrade-agent", weight: 3, on: nodes(killable)},
		{Name: "stop-agent", Start: "stop-agent", End: "start-agent", weight: 2, on: nodes(killable)},
		{Name: "kill-tunnel", Start: "kill-tunnel", weight: 4, on: nodes(gateway)},
		{Name: "freeze-tunnel", Start: "freeze-tunnel", End: "thaw-tunnel", weight: 3, on: nodes(gateway)},
		{Name: "lose-tunnels", Start: "lose-tunnels", End: "heal", weight: 3, on: nodes(gateway)},
		{Name: "kill-gateway", Start: "kill-gateway", End: "start-agent", weight: 3, on: nodes(both(gateway, killable))},
		{Name: "reboot", Start: "reboot", weight: 2, on: nodes(powered)},
		{Name: "power", Start: "power-off", End: "power-on", weight: 6, on: nodes(powered)},
		{Name: "stop-sync", Start: "stop-sync", End: "start-sync", weight: 2, on: clusters},
		{Name: "corrupt-fabric", Start: "corrupt-fabric", End: "start-sync", weight: 2, on: withSync},
		{Name: "drain", Start: Drain, End: Undrain, weight: 5, on: nodes(gateway)},
		{Name: "export", Start: Export, End: Revert, weight: 2, on: repository},
		{Name: "gateway", Start: Join, End: Revert, weight: 1, on: repository},
		{Name: "filter-lan", Start: Filter, End: "heal", Side: "lan", values: []string{Clusters, Pods}, weight: 5, on: nodes(any)},
	}
}

// KindOf returns the kind with a name.
func KindOf(name string) (Kind, bool) {
	for _, k := range Kinds() {
		if k.Name == name {
			return k, true
		}
	}
	return Kind{}, false
}

func any(Node) bool        { return true }
func gateway(n Node) bool  { return n.Gateway }
func killable(n Node) bool { return !n.NeverKilled }
func powered(n Node) bool  { return !n.KeepsPower && !n.NeverKilled }

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

// withSync returns the nodes, each locked together with the sync of its cluster, which would
// repair the node's files.
func withSync(t Topology) []target {
	var out []target
	for _, n := range t.Nodes {
		out = append(out, target{n.ID, []string{n.ID, "sync " + n.Cluster}})
	}
	return out
}

func repository(Topology) []target { return []target{{"", []string{"repository"}}} }

// CutsPower reports whether a kind of fault stops a node and everything on it.
func CutsPower(kind string) bool {
	k, _ := KindOf(kind)
	return k.Start == "power-off" || k.Start == "reboot"
}
