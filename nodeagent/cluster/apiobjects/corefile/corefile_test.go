package corefile

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema/fabric"
)

const kubeadm = `.:53 {
    errors
    health {
       lameduck 5s
    }
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }
    prometheus :9153
    forward . /etc/resolv.conf {
       max_concurrent 1000
    }
    cache 30
    loop
    reload
    loadbalance
}
`

const ownBlock = `# hawser: begin (managed by Hawser; changes up to the end mark are reverted)
clusterset.local:53 0.243.in-addr.arpa:53 {
    errors
    forward . 169.254.73.53 {
        max_fails 0
    }
}
# hawser: end
`

func forward() Forward {
	return Forward{Zones: []string{"clusterset.local", "0.243.in-addr.arpa"}, Servers: []netip.Addr{netip.MustParseAddr("169.254.73.53")}}
}

func TestInsert(t *testing.T) {
	t.Parallel()
	at := func(port, bind string) string {
		text := strings.ReplaceAll(ownBlock, ":53", ":"+port)
		if bind != "" {
			text = strings.Replace(text, "errors\n", "errors\n    "+bind+"\n", 1)
		}
		return text
	}
	tests := []struct {
		name, text, want string
	}{
		{"of kubeadm", kubeadm, ownBlock + kubeadm},
		{"already present", ownBlock + kubeadm, ownBlock + kubeadm},
		{"at its position", kubeadm + ownBlock, kubeadm + ownBlock},
		{"between others", kubeadm + ownBlock + "example.org { whoami\n}\n", kubeadm + ownBlock + "example.org { whoami\n}\n"},
		{"changed inside", strings.Replace(ownBlock, "max_fails 0", "max_fails 9", 1) + kubeadm, ownBlock + kubeadm},
		{"emptied", "# hawser: begin\n# hawser: end\n" + kubeadm, ownBlock + kubeadm},
		{"unbalanced inside", "# hawser: begin\n{\n# hawser: end\n" + kubeadm, ownBlock + kubeadm},
		{"no last line end", strings.TrimSuffix(kubeadm, "\n"), ownBlock + strings.TrimSuffix(kubeadm, "\n")},
		{"end mark without line end", kubeadm + strings.TrimSuffix(ownBlock, "\n"), kubeadm + ownBlock},
		{"empty", "", ownBlock},
		{"line ends of DOS", ".:53 {\r\n    errors\r\n}\r\n", ownBlock + ".:53 {\r\n    errors\r\n}\r\n"},
		{"another port", ".:1053 {\n errors\n}\n", at("1053", "") + ".:1053 {\n errors\n}\n"},
		{"port of the environment", "dns://.:{$PORT} {\n errors\n}\n", at("{$PORT}", "") + "dns://.:{$PORT} {\n errors\n}\n"},
		{"the root's port", "tls://.:853 example.org:5353 {\n}\nexample.net:99, .:54 {\n}\n",
			at("54", "") + "tls://.:853 example.org:5353 {\n}\nexample.net:99, .:54 {\n}\n"},
		{"bound", ". {\n errors\n bind 10.0.0.10 10.0.0.11 # both\n}\n", at("53", "bind 10.0.0.10 10.0.0.11") + ". {\n errors\n bind 10.0.0.10 10.0.0.11 # both\n}\n"},
		{"imports and snippets", "import custom/*.override\n(log) {\n errors\n}\n.:53 {\n import log\n}\nimport custom/*.server\n",
			ownBlock + "import custom/*.override\n(log) {\n errors\n}\n.:53 {\n import log\n}\nimport custom/*.server\n"},
		{"quotes and comments", ".:53 {\n log . \"{remote} {\" # } {\n}\n", ownBlock + ".:53 {\n log . \"{remote} {\" # } {\n}\n"},
		{"the domain at another port", "clusterset.local:5353 {\n whoami\n}\n.:53 {\n}\n", ownBlock + "clusterset.local:5353 {\n whoami\n}\n.:53 {\n}\n"},
		{"a name below the domain", "x.clusterset.local {\n whoami\n}\n", ownBlock + "x.clusterset.local {\n whoami\n}\n"},
		{"our marks quoted in a comment", "# see the \"# hawser: begin\" mark\n.:53 {\n}\n", ownBlock + "# see the \"# hawser: begin\" mark\n.:53 {\n}\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			have, err := Insert(tt.text, forward())
			if err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(tt.want, have); diff != "" {
				t.Errorf("(-want +have)\n%s", diff)
			}
			if again, err := Insert(have, forward()); again != have || err != nil {
				t.Errorf("inserted twice %q, %v", again, err)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, text, code, want string
		removes                bool // Remove restores the text before the block
	}{
		{"no end", "# hawser: begin\n" + kubeadm, Damaged, "1:1: error: the begin mark has no end mark after it", false},
		{"no begin", kubeadm + "# hawser: end\n", Damaged, "21:1: error: the end mark has no begin mark before it", false},
		{"two begins", "# hawser: begin\n" + ownBlock + kubeadm, Damaged, "2:1: error: the begin mark occurs twice", false},
		{"two ends", ownBlock + kubeadm + "# hawser: end", Damaged, "29:1: error: the end mark occurs twice", false},
		{"two blocks", ownBlock + ownBlock, Damaged, "9:1: error: the begin mark occurs twice", false},
		{"in the wrong order", "# hawser: end\n# hawser: begin\n", Damaged, "1:1: error: the end mark is before the begin mark", false},
		{"inside another block", ".:53 {\n" + ownBlock + "}\n", Damaged, "2:1: error: the block is inside another block", false},
		{"not closed", ".:53 {\n errors\n", Unreadable, "1:1: error: the block that opens here is not closed", true},
		{"closed twice", ".:53 {\n}\n}\n", Unreadable, "3:1: error: closing brace without an opening brace", true},
		{"no braces", ".:53\nerrors\n", Unreadable, "1:1: error: a server block without braces must be the only one", true},
		{"only a key", ".:53", Unreadable, "1:1: error: a server block without braces must be the only one", true},
		{"bind with a block", ". {\n bind 10.0.0.1 {\n  except 10.0.0.2\n }\n}\n", Unreadable, "2:1: error: a bind directive with a block is not supported", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			have, err := Insert(tt.text, forward())
			if have != tt.text {
				t.Errorf("text %q", have)
			}
			var d diag.Diagnostic
			if !errors.As(err, &d) || d.Code != tt.code || d.Hint == "" {
				t.Fatalf("error %#v", err)
			}
			if d.Pos.File = "F"; d.Error() != "F:"+tt.want {
				t.Errorf("error %q\n want %q", d.Error(), "F:"+tt.want)
			}
			if _, err := Remove(tt.text); (err == nil) != tt.removes {
				t.Errorf("remove: %v", err)
			}
			if _, _, ownBlock := SplitBlock(tt.text); ownBlock != strings.Contains(tt.text, "# hawser:") {
				t.Errorf("ownBlock: %t", ownBlock)
			}
		})
	}
}

func TestZoneConflict(t *testing.T) {
	t.Parallel()
	only := func(zone string) string {
		return strings.Replace(ownBlock, "clusterset.local:53 0.243.in-addr.arpa:53", zone+":53", 1)
	}
	const theirs = "clusterset.local:53 {\n  forward . 10.1.1.1\n}\n"
	tests := []struct{ name, text, want, message string }{
		{"before the insert", theirs + kubeadm, only("0.243.in-addr.arpa") + theirs + kubeadm,
			"F:1:1: error: a foreign server block serves clusterset.local"},
		{"with our block", ownBlock + "CLUSTERSET.local. {\n}\n", only("0.243.in-addr.arpa") + "CLUSTERSET.local. {\n}\n",
			"F:1:1: error: a foreign server block serves clusterset.local"},
		{"as one of many", kubeadm + "example.org,\nclusterset.local {\n}\n", only("0.243.in-addr.arpa") + kubeadm + "example.org,\nclusterset.local {\n}\n",
			"F:22:1: error: a foreign server block serves clusterset.local"},
		{"by prefix", "243.0.0.0/16 {\n}\n" + ownBlock, "243.0.0.0/16 {\n}\n" + only("clusterset.local"),
			"F:1:1: error: a foreign server block serves 0.243.in-addr.arpa"},
		{"all of it", ownBlock + "243.0.0.0/16 clusterset.local {\n}\n", "243.0.0.0/16 clusterset.local {\n}\n",
			"F:1:1: error: a foreign server block serves 0.243.in-addr.arpa"},
		{"by CoreDNS", ".:53 {\n kubernetes cluster.local clusterset.local {\n  multicluster clusterset.local\n }\n}\n",
			only("0.243.in-addr.arpa") + ".:53 {\n kubernetes cluster.local clusterset.local {\n  multicluster clusterset.local\n }\n}\n",
			"F:3:1: error: CoreDNS's own multicluster option serves clusterset.local"},
		{"in another file", "import custom/*.server\n" + ownBlock, "import custom/*.server\n" + only("0.243.in-addr.arpa"),
			"their.server:2:1: error: a foreign server block serves clusterset.local"},
		{"in a file that is not imported", ownBlock + kubeadm, ownBlock + kubeadm, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			message := func(err error) string {
				var d diag.Diagnostic
				if !errors.As(err, &d) || d.Code != ZoneConflict || d.Hint == "" {
					return fmt.Sprint(err)
				}
				d.Pos.File = cmp.Or(d.Pos.File, "F")
				return d.Error()
			}
			others := []OtherFile{{"broken.server", "{"}, {"their.server", "\nclusterset.local {\n}\n"}}
			have, err := Insert(tt.text, forward(), others...)
			if diff := gocmp.Diff(tt.want, have); diff != "" {
				t.Errorf("(-want +have)\n%s", diff)
			}
			if tt.message == "" && err != nil || tt.message != "" && message(err) != tt.message {
				t.Errorf("error %s", message(err))
			}
			if again, err := Insert(have, forward(), others...); again != have || tt.message != "" && message(err) != tt.message {
				t.Errorf("inserted twice %q, %v", again, err)
			}
		})
	}
}

// TestReserved checks that the block omits domains of the cluster's own DNS, and that the error
// names the first omitted domain.
func TestReserved(t *testing.T) {
	t.Parallel()
	const custom = ".:53 {\n kubernetes k8s.example in-addr.arpa ip6.arpa {\n  pods insecure\n }\n}\n"
	const cache = "node.example:53 {\n forward . __PILLAR__CLUSTER__DNS__\n}\n.:53 {\n}\n"
	tests := []struct{ name, domain, text, want string }{
		{"no conflict", "set.k8s.example", custom, ""},
		{"default domain", "cluster.local", kubeadm, "cluster.local is the DNS domain of a cluster"},
		{"default domain in a Corefile with another domain", "cluster.local", custom, "cluster.local is the DNS domain of a cluster"},
		{"case and dot", "Svc.Cluster.Local.", kubeadm, "Svc.Cluster.Local. hides names of cluster.local, the DNS domain of a cluster"},
		{"parent", "local", kubeadm, "local contains cluster.local, the DNS domain of a cluster"},
		{"root", ".", kubeadm, ". is the root of the DNS"},
		{"reverse zone", "10.in-addr.arpa", kubeadm, "10.in-addr.arpa is a reverse zone"},
		{"parent of the domain of this cluster", "example", custom, "example contains k8s.example, the DNS domain of a cluster"},
		{"child of the domain of this cluster", "pod.k8s.example", custom, "pod.k8s.example hides names of k8s.example, the DNS domain of a cluster"},
		{"plugin without arguments", "k8s.example", "k8s.example:53 www.example:99 {\n kubernetes\n}\n", "a foreign server block serves k8s.example"},
		{"parent of a plugin without arguments", "example", "k8s.example {\n kubernetes {\n  pods insecure\n }\n}\n", "example contains k8s.example, the DNS domain of a cluster"},
		{"parent of a domain that a cache forwards", "example", cache, "example contains node.example, the DNS domain of a cluster"},
		{"twice", "clusterset.local", kubeadm, "clusterset.local is a domain of the clusterset already"},
		{"twice by case", "CLUSTERSET.local", kubeadm, "CLUSTERSET.local is a domain of the clusterset already"},
		{"hides the clusterset", "svc.clusterset.local", kubeadm, `svc.clusterset.local hides names of "clusterset.local", a domain of the clusterset`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := ForwardOf(&fabric.Fabric{
				Domain: "clusterset.local", ExtraDomains: []string{tt.domain},
				ServicePools: []netip.Prefix{netip.MustParsePrefix("243.0.0.0/16")},
				DNS:          fabric.DNS{Address: forward().Servers[0]},
			}, &fabric.Cluster{})
			want := ownBlock + tt.text
			if tt.want == "" {
				want = strings.Replace(ownBlock, "0.243", tt.domain+":53 0.243", 1) + tt.text
			}
			check := func(have, want string, err error) {
				t.Helper()
				if diff := gocmp.Diff(want, have); diff != "" {
					t.Errorf("(-want +have)\n%s", diff)
				}
				var d diag.Diagnostic
				if errors.As(err, &d) != (tt.want != "") || d.Summary != tt.want || tt.want != "" && d.Hint == "" {
					t.Errorf("error %v, want %q", err, tt.want)
				}
			}
			have, err := Insert(tt.text, f)
			check(have, want, err)
			have, err = Insert(have, f)
			check(have, want, err)
			before := strings.Replace(ownBlock, "0.243", tt.domain+":53 0.243", 1) + tt.text
			have, err = Insert(before, f)
			check(have, want, err)
			body, _, _ := strings.Cut(strings.TrimPrefix(want, beginLine+"\n"), endMark)
			have, err = f.File(OtherFile{"Corefile", tt.text})
			check(have, "# managed by Hawser; changes are reverted\n"+body, err)
		})
	}
}

// TestSeparateFile checks that a separate file omits the zones of the other files.
func TestSeparateFile(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, corefile, theirs, want string
	}{
		{"alone", ownBlock + kubeadm, "example.org {\n}\n", "clusterset.local:53 0.243.in-addr.arpa:53 {"},
		{"in the Corefile", "clusterset.local {\n}\n" + kubeadm, "", "0.243.in-addr.arpa:53 {"},
		{"in another file", kubeadm, "0.243.in-addr.arpa {\n}\n", "clusterset.local:53 {"},
		{"all", "clusterset.local {\n}\n", "0.243.in-addr.arpa {\n}\n", ""},
	} {
		have, err := forward().File(OtherFile{"Corefile", tt.corefile}, OtherFile{"their.server", tt.theirs})
		if !strings.Contains(have, "\n"+tt.want) && tt.want != "" || tt.want == "" && have != "" || (err == nil) != (tt.name == "alone") {
			t.Errorf("%s: %q, %v", tt.name, have, err)
		}
	}
}

// FuzzRestore adds Hawser's block to any text and removes it again.
func FuzzRestore(f *testing.F) {
	for _, text := range []string{"", "\n", kubeadm, ownBlock, ownBlock + kubeadm, kubeadm + ownBlock, ". {\n}", "# hawser: begin", "\"", "a:1,\nb {\nbind x\n}\n", "{}", "}{", ownBlock + "clusterset.local {\n}\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		with, err := Insert(text, forward())
		var d diag.Diagnostic
		if err != nil {
			if !errors.As(err, &d) || d.Pos.Line < 1 || d.Code != ZoneConflict && with != text {
				t.Fatalf("error %v, text changed: %t", err, with != text)
			}
			if d.Code != ZoneConflict {
				return
			}
		}
		bare, err := Remove(text)
		if err != nil {
			t.Fatal(err)
		}
		if have, err := Remove(with); err != nil || have != bare {
			t.Errorf("removed again %q, want %q (%v)", have, bare, err)
		}
		if again, err := Insert(with, forward()); (err != nil) != (d.Code == ZoneConflict) || again != with {
			t.Errorf("inserted twice %q, once %q (%v)", again, with, err)
		}
		block, rest, is := SplitBlock(with)
		if !is && d.Code != ZoneConflict || rest != bare || !strings.Contains(with, block) {
			t.Errorf("block %q, rest %q, want %q", block, rest, bare)
		}
	})
}

func TestForwardOf(t *testing.T) {
	t.Parallel()
	four, six := netip.MustParseAddr("169.254.73.53"), netip.MustParseAddr("fd68::53")
	f := &fabric.Fabric{
		Domain: "clusterset.local", ExtraDomains: []string{"supercluster.local"},
		ServicePools: []netip.Prefix{netip.MustParsePrefix("243.0.0.0/16")},
		DNS:          fabric.DNS{Address: four, IPv6Address: six},
	}
	for pods, want := range map[string]netip.Addr{"10.7.0.0/16": four, "fd10::/48": six} {
		have := ForwardOf(f, &fabric.Cluster{PodCIDRs: []netip.Prefix{netip.MustParsePrefix(pods)}})
		if diff := gocmp.Diff(Forward{
			Zones:   []string{"clusterset.local", "supercluster.local", "0.243.in-addr.arpa"},
			Domains: []string{"clusterset.local", "supercluster.local"}, Servers: []netip.Addr{want},
		}, have, gocmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("pods %s (-want +have)\n%s", pods, diff)
		}
	}
}
