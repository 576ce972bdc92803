-- Devices with connections to several gateways.

-- +goose Up
-- The gateways with connections of the device, as far as held_until has not passed.
ALTER TABLE badged.devices ADD COLUMN held_by text[];
