-- Webhooks that a file of the configuration declares.

-- +goose Up
SELECT badged.wait_for_batches();

-- Whether --webhooks-config declares it: only its state is set over the API, and it is
-- deleted once the file lacks it.
ALTER TABLE badged.webhooks ADD COLUMN declared boolean NOT NULL DEFAULT false;
