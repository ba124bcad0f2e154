# frozen_string_literal: true

require "heddle/lab"
require "support/lab_records"

# Histories as `heddle bench http --record` leaves them, without a measurement.
module LabHistories
  CLIENTS = %w[stock heddle curb].freeze
  SITES = %w[local dallas].freeze

  module_function

  # @param folder [String]
  # @param runs [Integer]
  # @param from [Integer] the place of the run from which on something is different
  # @param factors [Hash{String => Float}] by how much the CPU times of a client are larger then
  # @param versions [Hash{String => String}] of clients then
  # @param revisions [Array<Hash>, nil] of the runs
  def write(folder, runs: 12, from: 6, factors: {}, ruby: "4.0.5", machine: "quiet", versions: {}, revisions: nil)
    runs.times do |place|
      record = record(ruby, place)
      change(record, (place >= from) ? factors : {})
      record.header["models"].each do |model|
        model["versions"] = [versions[model["name"]]] if place >= from && versions[model["name"]]
      end
      entry(record, revisions ? revisions[place] : revision(place), machine).write(folder)
    end
  end

  def record(ruby, place)
    LabRecords.http(ruby, clients: CLIENTS, sites: SITES, rounds: 3, seed: place).tap do |record|
      record.header["started_at"] = time(place)
    end
  end

  def change(record, factors)
    record.rounds.each do |round|
      factor = factors[round.model] or next
      %w[cpu user system].each { |measure| round.measures[measure] *= factor }
    end
  end

  def entry(record, revision, machine)
    bench = Heddle::Lab::Bench::HTTP.new
    run = Heddle::Lab::CLI::BenchCommand.new(bench, nil, nil).recorded(record)
    Heddle::Lab::History::Entry.of(record, run, title: bench.title, revision: revision, machine: machine)
  end

  def revision(place) = {"git" => format("%08x", 0xabc0 + place) * 5, "dirty" => false, "committed_at" => time(place)}

  def time(place) = (Time.utc(2026, 11, 1) + place * 86_400).iso8601
end
