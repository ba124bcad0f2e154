# frozen_string_literal: true

# What is asked of libraries, and the answers.
module Compatibility
  FOLDER = File.expand_path("libraries", __dir__)

  @libraries = {}

  class << self
    # Describes a library: see Library for the words in the block.
    #
    # @param name [String] of the row
    # @param gem [String, nil] whose version the row has, if it is not the row's name
    # @param kind [String] the heading over the row
    def library(name, kind:, gem: name, &description)
      raise ArgumentError, "#{name} is described twice" if @libraries.key?(name)

      @libraries[name] = Library.new(name, kind, gem, &description)
    end

    # @return [Hash{String => Library}] by name, in the order of the files
    def libraries
      Dir["#{FOLDER}/*.rb"].sort.each { |file| require file }
      @libraries
    end
  end

  # How a library is asked for an answer. A description says, in this order:
  #
  #   peer :redis                               # or another word of Peers
  #   load { require "redis" }                  # runs in the process that asks
  #   connect { |peer| Redis.new(host: peer.host, port: peer.port) }
  #   ask { |redis, number| redis.echo("heddle#{number}")[/\d+/].to_i }
  #   close { |redis| redis.close }             # if it has to be
  #
  # The block of `ask` sends a request that contains the number, and returns the number that the answer contains: so an
  # answer that belongs to another request is seen.
  class Library
    attr_reader :name, :kind, :gem, :reasons, :notes

    def initialize(name, kind, gem, &description)
      @name, @kind, @gem = name, kind, gem
      @peer = [nil, {}, nil]
      @load = @connect = @close = proc {}
      @reasons = {}
      @notes = []
      @questions = Examination::QUESTIONS
      @rubies = "3.1"
      instance_exec(&description)
    end

    # The server that the library talks to: see Peers.
    #
    # @param peer [Symbol, Class] a word of Peers, or a class of servers with `start`, `stop`, `host` and `port`
    def peer(peer, **options, &script)
      @peer = [peer, options, script]
    end

    def load(&block)
      @load = block
    end

    def connect(&block)
      @connect = block
    end

    def ask(&block)
      @ask = block
    end

    def close(&block)
      @close = block
    end

    # The oldest Ruby that the library runs on.
    def ruby(version)
      @rubies = version
    end

    # Asks only these questions.
    #
    # @param reason [String] Markdown
    def only(*questions, reason)
      @questions = questions
      note(reason)
    end

    # Says something beside the row.
    #
    # @param text [String] Markdown
    def note(text)
      @notes << text
    end

    # Why questions are not answered as they should be, where that is not Heddle's fault: what happens there, with a
    # link if somebody has written it down, and what helps.
    #
    # @param questions [Array<Symbol>] of Examination::QUESTIONS, or :afterwards: the client is no longer usable; none:
    #   for all that is not as it should be
    # @param reason [String] Markdown
    def because(*questions, reason)
      (questions.empty? ? [:any] : questions).each { |question| @reasons[question] = reason }
    end

    # @return [Array<Symbol>]
    attr_reader :questions

    def runs_on?(ruby) = Gem::Version.new(ruby) >= Gem::Version.new(@rubies)

    # @return [Array(Symbol, Hash, Proc)] what `peer` was told
    def wanted_peer = @peer

    def loads = @load.call

    def new_client(address) = @connect.call(address)

    def answer(client, number) = @ask.call(client, number)

    def end_client(client) = @close.call(client)
  end
end

require_relative "examination"
