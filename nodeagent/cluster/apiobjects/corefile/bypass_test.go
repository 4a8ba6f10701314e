package corefile

import (
	"strings"
	"testing"
)

// nodelocal is the Corefile of kubernetes/cluster/addons/dns/nodelocaldns, a template.
const nodelocal = `__PILLAR__DNS__DOMAIN__:53 {
    errors
    cache {
            success 9984 30
            denial 9984 5
    }
    reload
    loop
    bind __PILLAR__LOCAL__DNS__ __PILLAR__DNS__SERVER__
    forward . __PILLAR__CLUSTER__DNS__ {
            force_tcp
    }
    prometheus :9253
    health __PILLAR__LOCAL__DNS__:8080
    }
in-addr.arpa:53 {
    errors
    cache 30
    reload
    loop
    bind __PILLAR__LOCAL__DNS__ __PILLAR__DNS__SERVER__
    forward . __PILLAR__CLUSTER__DNS__ {
            force_tcp
    }
    prometheus :9253
    }
ip6.arpa:53 {
    errors
    cache 30
    reload
    loop
    bind __PILLAR__LOCAL__DNS__ __PILLAR__DNS__SERVER__
    forward . __PILLAR__CLUSTER__DNS__ {
            force_tcp
    }
    prometheus :9253
    }
.:53 {
    errors
    cache 30
    reload
    loop
    bind __PILLAR__LOCAL__DNS__ __PILLAR__DNS__SERVER__
    forward . __PILLAR__UPSTREAM__SERVERS__
    prometheus :9253
    }
`

// TestNodeLocal checks that Hawser's block has the bind directive of the template's other blocks,
// with its placeholders.
func TestNodeLocal(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"as it is":  nodelocal,
		"filled in": strings.NewReplacer("__PILLAR__LOCAL__DNS__", "169.254.20.10", "__PILLAR__DNS__SERVER__", "10.96.0.10", "__PILLAR__DNS__DOMAIN__", "cluster.local").Replace(nodelocal),
		"IPVS":      strings.ReplaceAll(nodelocal, " __PILLAR__DNS__SERVER__", ""),
	} {
		_, bind, _ := strings.Cut(text, "bind ")
		bind, _, _ = strings.Cut(bind, "\n")
		want := strings.Replace(ownBlock, "errors\n", "errors\n    bind "+bind+"\n", 1) + text
		have, err := Insert(text, forward())
		if err != nil || have != want {
			t.Errorf("%s: error %v, text\n%s", name, err, have)
		}
		if bare, err := Remove(have); err != nil || bare != text {
			t.Errorf("%s: error %v, text without the block\n%s", name, err, bare)
		}
		if !BypassesForward(text, "clusterset.local") || BypassesForward(have, "clusterset.local") {
			t.Errorf("%s: bypasses the forward: %v, with the block %v", name, BypassesForward(text, "clusterset.local"), BypassesForward(have, "clusterset.local"))
		}
	}
}

func TestBypassesForward(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"": false,
		"clusterset.local:53 {\n forward . 10.96.0.10\n}\n.:53 {\n forward . /etc/resolv.conf\n}\n": false,
		".:53 {\n forward . __PILLAR__CLUSTER__DNS__\n}\n":                                          false,
		".:53 {\n forward . /etc/resolv.conf\n}\n":                                                  true,
		"cluster.local:53 {\n forward . __PILLAR__CLUSTER__DNS__\n}\n":                              false,
		".:53 {\n": false,
		"import x\n.:53 {\n forward . 1.1.1.1\n}": false,
	} {
		if have := BypassesForward(text, "clusterset.local"); have != want {
			t.Errorf("%q: %v", text, have)
		}
	}
}

func TestImportsServers(t *testing.T) {
	t.Parallel()
	const root = ".:53 {\n    errors\n    import /etc/coredns/custom/*.override\n    forward . /etc/resolv.conf\n}\n"
	for text, want := range map[string]bool{
		root: false,
		root + "import /etc/coredns/custom/*.server\n":                   true, // k3s
		root + "import custom/*.server\n":                                true, // AKS
		"import custom/*.server\n" + root:                                true,
		root + "import common zones custom/*.server\n":                   true,
		root + "# import custom/*.server\n":                              false,
		root + "import custom/*.override\n":                              false,
		".:53 {\n    import custom/*.server\n}\n":                        false,
		root + "import custom/*.other\nexample.org {\n    whoami\n}\n":   false,
		root + "import custom/*.server\nexample.org {\n    whoami\n}\n":  true,
		"example.org {\n    whoami\n}\nimport custom/*.server\n.:53 {\n": true,
		".:53 {\n": false,
		"":         false,
	} {
		if have := ImportsServers(text); have != want {
			t.Errorf("%q: imports servers: %v, want %v", text, have, want)
		}
	}
}
