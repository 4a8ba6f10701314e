// Command hyperkube contains every program of a Kubernetes cluster, and kubectl, in one static file.
// Its own name, or else its first argument, selects the program.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// programs by the names that they have upstream.
func programs() map[string]func() *cobra.Command {
	return map[string]func() *cobra.Command{
		"kube-apiserver":          apiserver.NewAPIServerCommand,
		"kube-controller-manager": controllers.NewControllerManagerCommand,
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
		"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
		"kube-proxy":              proxy.NewProxyCommand,
		"kubectl":                 kubectl.NewDefaultKubectlCommand,
	}
}

func main() {
	known := programs()
	name := filepath.Base(os.Args[0])
	if name != "etcd" && known[name] == nil && len(os.Args) > 1 {
		os.Args = os.Args[1:]
		name = os.Args[0]
	}
	if name == "etcd" {
		wal.SegmentSizeBytes = 8 << 20 // preallocated twice; the default is 64 MiB
		etcdmain.Main(os.Args)
		return
	}
	program, ok := known[name]
	if !ok {
		names := []string{"etcd"}
		for n := range known {
			names = append(names, n)
		}
		slices.Sort(names)
		fmt.Fprintf(os.Stderr, "usage: hyperkube %s [ARGUMENTS]\n", strings.Join(names, "|"))
		os.Exit(2)
	}
	os.Exit(cli.Run(program()))
}
