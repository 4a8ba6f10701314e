package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// addExamples gives each command the examples of its --help.
func addExamples(root *cobra.Command) {
	examples := map[string]string{
		"hawser": `
hawser init --clusters fra,sin --with-keys keys/
hawser validate
hawser diff`,
		"init": `
hawser init --clusters fra,sin
hawser init infra/ --clusters fra,sin --with-keys keys/
hawser init --schema=false`,
		"validate": `
hawser validate
hawser validate -f infra/clusterset.yaml -o json`,
		"fmt": `
hawser fmt
hawser fmt --check infra/`,
		"allocate": `
hawser allocate
hawser allocate --check
hawser allocate --gc`,
		"render": `
hawser render --out rendered/ --root-key root.key`,
		"diff": `
hawser diff
hawser diff --against origin/rendered
hawser diff -o markdown
hawser diff --live --cluster fra`,
		"discover": `
hawser discover --context fra,ams=admin@ams
hawser discover --context fra -o yaml`,
		"join": `
hawser join --context sin --dry-run
hawser join --context sin=admin@sin`,
		"leave": `
hawser leave sin --dry-run
hawser leave sin`,
		"preflight": `
hawser preflight
hawser preflight --pods
hawser preflight --context fra=admin@fra -o json`,
		"explain": `
hawser explain g1/shop/client web.shop:80
hawser explain g1/shop/client web.shop:80 --live --context g1=admin@g1
hawser explain g1 10.8.2.5:443 -o svg`,
		"graph": `
hawser graph -o svg
hawser graph --diff rendered -o mermaid
hawser graph --live --context fra,ams -o json`,
		"firewall": `
hawser firewall
hawser firewall -o terraform-aws`,
		"history": `
hawser history
hawser history -n 3 --repo https://git.example.com/infra.git -o json`,
		"rollback": `
hawser rollback --dry-run
hawser rollback 3f2a91c`,
		"bootstrap": `
hawser bootstrap --dry-run
hawser bootstrap --context fra --context ams=admin@ams
hawser bootstrap --with flux --follow https://git.example.org/net/clusterset.git`,
		"apply": `
hawser apply --root-key root.key --dry-run
hawser apply --root-key root.key --context fra=admin@fra,sin=admin@sin --wait`,
		"uninstall": `
hawser uninstall fra --dry-run
hawser uninstall fra sin --crds`,
		"status": `
hawser status
hawser status --wait --timeout 10m
hawser status --watch
hawser status -o jsonpath={.trouble}
hawser status --context fra=admin@fra -o json`,
		"benchmark": `
hawser benchmark fra ams
hawser benchmark fra ams --for 10s --streams 8 -o json`,
		"verify": `
hawser verify
hawser verify --cluster fra,sin`,
		"diagnose": `
hawser diagnose --cluster fra,sin --export shop/web
hawser diagnose --address 10.7.2.5
hawser diagnose --export shop/web -o html`,
		"report": `
hawser report -o report.html
hawser report --live --context fra,ams -o report.html
hawser report --verify -o report.json`,
		"ui": `
hawser ui
hawser ui --live
hawser ui -f clusterset.yaml --context fra=admin@fra,sin=admin@sin`,
		"gather": `
hawser gather
hawser gather --cluster fra,sin`,
		"reconcile": `
hawser reconcile --repo https://git.example.com/infra.git --root-key root.key --cache /var/cache/hawser
hawser reconcile --repo git@git.example.com:infra.git --ssh-key deploy.key --root-key root.key --once
hawser reconcile --root-key root.key --dry-run`,
		"keys root": `
hawser keys root root.key
hawser keys root root.key --from 2`,
		"keys identity": `
hawser keys identity fra.identity`,
		"keys show": `
hawser keys show --root-key root.key`,
		"keys epochs": `
hawser keys epochs --cluster fra,sin`,
		"keys signers": `
hawser keys signers --cluster fra --root-key root.key`,
		"show connections": `
hawser show connections
hawser show connections --context fra=admin@fra,sin=admin@sin`,
		"show paths": `
hawser show paths -o json`,
		"show exports": `
hawser show exports --cluster fra`,
		"show clusters": `
hawser show clusters -f clusterset.yaml`,
		"show all": `
hawser show all --socket /run/hawser/agent.sock`,
		"lab up": `
hawser lab up -f clusterset.yaml
hawser lab up -f clusterset.yaml -w workloads/ --workers 2`,
		"lab down":   "hawser lab down",
		"lab status": "hawser lab status",
		"lab repo":   `cd "$(hawser lab repo)"`,
		"lab recipient": `
hawser lab recipient g3`,
		"lab exec": `
hawser lab exec g1/default/client -- curl -s web.shop.svc.clusterset.local`,
		"lab node": `
hawser lab node g1/g1-gw -- ip -br addr`,
		"lab underlay": `
hawser lab underlay -- ip -br addr`,
		"lab logs": `
hawser lab logs g1/g1-gw
hawser lab logs reconciler`,
		"lab apply":  "hawser lab apply g1 -f web.yaml",
		"lab delete": "hawser lab delete g1/shop/Deployment/web",
		"lab scale":  "hawser lab scale g1/shop/Deployment/web 3",
		"lab ready":  "hawser lab ready g1/shop/web-0 false",
		"lab fault":  "hawser lab fault cut g1/g1-gw wan",
		"version": `
hawser version
hawser --version`,
	}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		text := examples[strings.TrimPrefix(cmd.CommandPath(), "hawser ")]
		if text = strings.TrimPrefix(text, "\n"); text != "" {
			cmd.Example = "  " + strings.ReplaceAll(text, "\n", "\n  ")
		}
		for _, below := range cmd.Commands() {
			walk(below)
		}
	}
	walk(root)
}
