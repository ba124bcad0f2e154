require "heddle"
Warning[:experimental] = false
rs = 4.times.map { Ractor.new { 200000.times { Object.new }; GC.start; 1 } }
20000.times { Heddle::Semaphore.new(1) }
rs.each { |r| r.respond_to?(:value) ? r.value : r.take }
GC.start
p :ok
