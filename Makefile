.venv/ready:
	python3 -m venv .venv && .venv/bin/pip install -r constraints.txt && .venv/bin/pip install -e . && touch $@
