# frozen_string_literal: true

# Where a test file runs in the matrix of `bin/test --all`, and whether plain `bin/test` runs it. Its folder has a rule
# (see matrix.rb); what differs from that, the file says in one line below its `require`s:
#
#   runs_on rubies: :ends, backends: :one, also: %i[yjit], except: %i[portable], short: false
#
# rubies:: of those that its folder runs on: all; the oldest and the newest (:ends), for long tests, and for code that
#          the Rubies between cannot run differently; the oldest; the newest
# backends:: one, for what takes the same way on all of them
# also:: cells that run named files only
# except:: cells that the folder runs in
# short:: false for long tests that rarely fail alone: plain `bin/test` leaves them out
class Placement
  RUBIES = %i[all ends oldest newest].freeze
  BACKENDS = %i[all one].freeze
  # Fibers and exceptions under YJIT; the server's version; Puma's version; poll, where few files run on it.
  ALSO = %i[yjit newer_servers oldest_puma poll].freeze
  # The portable build, where the file tests nothing that waits differently there; the debug build, whose assertions
  # are about the loop; the newest Net::HTTP, where the file does not use it.
  EXCEPT = %i[portable debug newest_net_http].freeze
  LINE = /^runs_on (.+)$/
  private_constant :RUBIES, :BACKENDS, :ALSO, :EXCEPT, :LINE

  class << self
    # @param file [String] a path
    # @return [Placement]
    def of(file) = new(**parse(File.read(file)[LINE, 1].to_s))

    private

    def parse(rules)
      rules.scan(/(\w+): (?:%i\[([\w ]+)\]|:?(\w+))/).to_h do |name, list, word|
        [name.to_sym, list ? list.split.map(&:to_sym) : {"true" => true, "false" => false}.fetch(word, word.to_sym)]
      end
    end
  end

  # @raise [ArgumentError] for a word that does not exist
  def initialize(rubies: :all, backends: :all, also: [], except: [], short: true)
    unknown = [rubies] - RUBIES + ([backends] - BACKENDS) + (also - ALSO) + (except - EXCEPT) +
      ([short] - [true, false])
    raise ArgumentError, "runs_on knows no #{unknown.join(", ")}: see test/support/placement.rb" if unknown.any?

    @rubies, @backends, @also, @except, @short = rubies, backends, also, except, short
  end

  # @return [Symbol]
  attr_reader :rubies

  def one_backend? = @backends == :one

  def also?(cell) = @also.include?(cell)

  def except?(cell) = @except.include?(cell)

  def short? = @short
end
