# frozen_string_literal: true

# A memcached server of a simulated world, with the commands of the meta protocol that Heddle sends. Written from
# memcached's doc/protocol.txt. Servers of one ring share a log of all that they did.
class SimulatedMemcached
  # What servers did, by key: [time, value] of each answer to a read (nil: a miss) and of each value stored; and how
  # often something came that must not come twice.
  class Log
    attr_reader :answers, :stores, :once

    def initialize
      @answers, @stores = Array.new(2) { Hash.new { |hash, key| hash[key] = [] } }
      @once = Hash.new(0)
    end
  end

  # `taken`: one client makes the value. `ends`: when nobody has made it.
  Item = Struct.new(:value, :flags, :cas, :taken, :stale, :ends)
  private_constant :Item

  # How probable it is that an answer takes its time, and that the connection ends in its place.
  attr_accessor :slow, :silent

  def initialize(world, log)
    @world, @log = world, log
    @items, @sockets, @cas = {}, [], 0
    @slow = @silent = 0.0
  end

  # For Host#tcp.
  def serve(socket)
    @sockets << socket
    while (line = socket.gets("\r\n"))
      said = answer(socket, *line.split)
      sleep(@world.draw(0.0..1.0)) if @world.draw < @slow
      break if @world.draw < @silent

      socket.write(said) if said
    end
  ensure
    @sockets.delete(socket)
  end

  # The process ends, with all that it knew.
  def die
    @items.clear
    @sockets.dup.each(&:close)
  end

  private

  def answer(socket, command, key = nil, *rest)
    case command
    when "version" then "VERSION 1.6.21\r\n"
    when "mn" then "MN\r\n"
    when "mg" then read(key, options(rest))
    when "ms"
      bytes = socket.read(Integer(rest.shift))
      socket.read(2)
      written(store(key, bytes, options(rest)), options(rest), "HD")
    when "md" then written(remove(key, options(rest)), options(rest), "HD")
    when "ma" then count(key, options(rest))
    else raise "the server does not know #{command}"
    end
  end

  # @return [Hash{String => String}] flags of a request by their letters
  def options(words) = words.to_h { |word| [word[0], word[1..]] }

  def line(status, options, item = nil, more = "")
    fields = options.filter_map do |letter, text|
      case letter
      when "O" then "O#{text}"
      when "f" then "f#{item.flags}" if item
      when "c" then "c#{item.cas}" if item
      when "t" then "t-1" if item
      when "h" then "h1" if item
      when "l" then "l0" if item
      end
    end
    "#{[status, *fields].join(" ")}#{more}\r\n"
  end

  # Of a quiet request the usual answer is left out.
  def written((status, item), options, usual)
    line(status, options, item) unless options.key?("q") && status == usual
  end

  # ---- reads

  def read(key, options)
    @items.delete(key) if @items[key]&.ends&.<(@world.now)
    item = @items[key]
    made = item.nil? && options.key?("N")
    item = @items[key] = Item.new("", 0, next_cas, true, false, @world.now + Integer(options["N"])) if made
    @log.answers[key] << [@world.now, (item && !placeholder?(item)) ? item.value : nil]
    return written(["EN", nil], options, "EN") unless item

    more = made ? " W" : state(item)
    return line("HD", options, item, more) unless options.key?("v")

    "#{line("VA #{item.value.bytesize}", options, item, more)}#{item.value}\r\n"
  end

  def placeholder?(item) = item.value.empty? && item.taken

  # Who wins may make a new value.
  def state(item)
    return item.taken ? " Z" : "" unless item.stale

    won = !item.taken
    item.taken = true
    won ? " W X" : " X Z"
  end

  # ---- changes

  def next_cas = (@cas += 1)

  def store(key, bytes, options)
    item = @items[key]
    return ["NF"] if options["C"] && item.nil?
    return ["EX"] if options["C"] && item.cas != Integer(options["C"])

    case options["M"]
    when "E" then return ["NS"] if item
    when "R" then return ["NS"] unless item
    when "A" then item ? bytes = item.value + bytes : (return ["NS"])
    when "P" then item ? bytes += item.value : (return ["NS"])
    end
    ["HD", keep(key, bytes, options.fetch("F", "0"))]
  end

  def keep(key, bytes, flags)
    @log.stores[key] << [@world.now, bytes]
    @log.once[bytes.split.last] += 1
    @items[key] = Item.new(bytes, flags, next_cas, false, false)
  end

  def remove(key, options)
    item = @items[key] or return ["NF"]
    return ["EX"] if options["C"] && item.cas != Integer(options["C"])

    if options.key?("I")
      item.stale, item.taken, item.cas = true, false, next_cas
    else
      @items.delete(key)
    end
    ["HD"]
  end

  def count(key, options)
    item = @items[key]
    @log.once["by #{options.fetch("D", "1")}"] += 1
    if item
      number = item.value.to_i + ((options["M"] == "D") ? -1 : 1) * Integer(options.fetch("D", "1"))
    elsif options.key?("N")
      number = Integer(options.fetch("J", "0"))
    else
      return line("NF", options)
    end
    item = @items[key] = Item.new(number.to_s, 0, next_cas, false, false)
    options.key?("v") ? "#{line("VA #{item.value.bytesize}", options, item)}#{item.value}\r\n" : line("HD", options)
  end
end
