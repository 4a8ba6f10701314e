#!/bin/sh
# Writes reconciler.yaml, which is what the chart says; make verify-release compares them.
cd "$(dirname "$0")" && "${HELM:-helm}" template hawser ../../charts/hawser-reconciler -n hawser-reconciler \
  --set 'repo=$(HAWSER_REPO),ref=$(HAWSER_REF),path=$(HAWSER_PATH),gitCA.configMap=hawser-git-ca,gitCA.optional=true' \
  --set-json 'envFrom=[{"configMapRef":{"name":"hawser-reconciler"}},{"secretRef":{"name":"hawser-git","optional":true}}]' \
  | sed '/^# Source: /d'
