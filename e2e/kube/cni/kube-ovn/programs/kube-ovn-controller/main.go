// Command kube-ovn-controller is Kube-OVN's controller alone: its own program has all of
// its commands, some of which need modules that a proxy may not have.
package main

import "github.com/kubeovn/kube-ovn/cmd/controller"

func main() { controller.CmdMain() }
